"""`ale loop` with a policy, a server, a proxy and an agent: deployed, or refused when worse."""

import json
import signal
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import openai
import pytest

from ale.testing.waiting import wait_for

pytestmark = pytest.mark.needs("torch")

PATIENCE_S = 300.0
TINY = {"corpus": "corpus.txt", "layers": 1, "width": 32, "heads": 2, "mlp": 64}
QUESTIONS = [f"Say something to {name}." for name in ("Ann", "Bob", "Cid", "Dan")]
DRIVER = '''
"""The loop, with a clock that a file sets."""

import sys
from pathlib import Path

from ale.runs import Registry
from ale_loop.running import run

clocks = {"clock": lambda: float(Path("now").read_text())}
report = lambda text: print(text, flush=True)
run(Path("loop.yaml"), Registry.installed(), report, clocks=clocks)
'''
QUESTIONS_PY = Path(__file__).parents[2] / "configs" / "service" / "questions.py"
"""Held-out questions, and a criterion that wants a vowel."""
HELD_OUT = {
    "type": "questions",
    "names": ["Eve", "Flo", "Guy", "Hal", "Ida", "Jim", "Kay", "Leo"],
}


class World:
    """A server, a proxy and a loop, each a process, and the agent that is this test."""

    def __init__(self, workshop: Any) -> None:
        self.workshop = workshop
        self.n = 0
        workshop.write("corpus.txt", "We see a queue. I owe you a tea. Try my dry sky.\n" * 20)
        workshop.write("questions.py", QUESTIONS_PY.read_text())
        workshop.write("driver.py", DRIVER)
        llm = {"type": "policy", "tiny": TINY, "max_tokens": 3}
        self.train = {
            "plugins": ["questions.py"],
            "tasks": HELD_OUT,
            "sandbox": {"type": "local", "root": str(workshop.space)},
            "llm": llm,
            "agent": {"type": "single-shot"},
            "credit": {"type": "grpo"},
            "trainer": {
                "type": "policy",
                "objective": "reinforce",
                "lr": 0.03,
                "epochs": 8,
                "sync": "copy",
            },
            "evaluation": {"tasks": HELD_OUT, "rollouts": 4},
            "observers": [],
            "run": {"tasks_per_step": 4, "rollouts": 8},
        }
        workshop.write("train.yaml", self.train)
        workshop.write("serve.yaml", {"llm": llm})
        loop = {
            "train": "train.yaml",
            "directory": "runs/loop",
            "episodes": ["runs/agent"],
            "serve": {"type": "servers", "tiny": TINY, "registry": "servers"},
            "train_window": "22:30-06:00",
            "poll_s": 0.2,
        }
        workshop.write("loop.yaml", loop)
        command = ("serve", "--config", "serve.yaml", "--port", "0", "--register", "servers")
        self.upstream = self._started(*command)
        tokens = ("--ask-tokens", "--logprobs-mode", "processed")
        self.url = self._started(
            "proxy", self.upstream, "--port", "0", "--run", "runs/agent", *tokens
        )
        self.client = openai.OpenAI(base_url=self.url, api_key="any")

    def _started(self, *arguments: str) -> str:
        running = self.workshop.start(*arguments)
        printed = self.workshop.wait_for(lambda: running.printed.strip(), timeout_s=PATIENCE_S)
        return str(printed.splitlines()[0])

    def work(self, *, good: bool) -> None:
        """The agent answers eight times each question; a judge rewards vowels, or their absence."""
        for question in QUESTIONS:
            for _ in range(8):
                self.n += 1
                name = f"s{self.n}"
                answer = self.client.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": question}],
                    seed=self.n,
                    temperature=1,
                    top_p=1,
                    extra_headers={"X-Ale-Session": name},
                )
                said = answer.choices[0].message.content or ""
                has_vowel = any(each in "aeiou" for each in said)
                body = json.dumps({"score": float(has_vowel == good)}).encode()
                url = f"{self.url}/sessions/{name}/feedback"
                json_ = {"Content-Type": "application/json"}
                asked = urllib.request.Request(url, body, json_)
                urllib.request.urlopen(asked, timeout=PATIENCE_S).read()

    def time(self, text: str) -> None:
        now = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        partial = self.workshop.write("now.partial", str(now))
        partial.rename(self.workshop.folder / "now")

    def loop(self) -> "subprocess.Popen[bytes]":
        with (self.workshop.folder / "loop.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "driver.py"],
                cwd=self.workshop.folder,
                env=self.workshop.environ,
                stdout=log,
                stderr=log,
            )

    @property
    def said(self) -> str:
        return (self.workshop.folder / "loop.log").read_text()

    def wait(self, text: str, n: int = 1) -> None:
        wait_for(lambda: self.said.count(text) >= n, lambda: self.said, PATIENCE_S)

    def history(self) -> list[dict[str, Any]]:
        done = self.workshop.succeeds(
            "loop", "history", "loop.yaml", "--json", timeout_s=PATIENCE_S
        )
        made: list[dict[str, Any]] = json.loads(done.out)
        return made

    def version_served(self) -> int:
        body = urllib.request.Request(
            f"{self.upstream.removesuffix('/v1')}/ale/status",
            data=b"{}",
            headers={"Content-Type": "application/json"},
        )
        answer = urllib.request.urlopen(body, timeout=PATIENCE_S).read()
        return int(json.loads(answer)["version"])


def test_what_an_agent_does_makes_a_better_policy_and_a_worse_one_is_refused(workshop: Any) -> None:
    world = World(workshop)
    world.time("2026-11-23T21:00:00")
    loop = world.loop()
    try:
        world.work(good=True)
        world.wait("4 groups wait for 22:30-06:00 UTC")
        loop.kill()
        loop.wait(PATIENCE_S)
        assert world.version_served() == 0
        world.time("2026-11-23T23:00:00")
        loop = world.loop()
        world.wait("version 1 ")
        assert world.history()[0]["what"] == "deployed", world.said
        workshop.wait_for(lambda: world.version_served() == 1, timeout_s=PATIENCE_S)
        listed = json.loads(workshop.ale("status", "--json", timeout_s=PATIENCE_S).out)
        assert {"loop", "proxy", "server"} <= {each["kind"] for each in listed["processes"]}
        world.work(good=False)
        world.wait("version 2 ")
        assert world.history()[1]["what"] == "refused", world.said
        assert world.version_served() == 1
        workshop.succeeds("loop", "restore", "loop.yaml", "0", timeout_s=PATIENCE_S)
        assert world.version_served() == 0
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(PATIENCE_S) == 0, world.said
    finally:
        loop.kill()
        loop.wait(PATIENCE_S)
    shown = workshop.ale("loop", "status", "loop.yaml").out
    assert "does not run" in shown
    assert "taken       64 episodes" in shown
    assert "waiting     0 full groups (4 make a batch)" in shown
    assert Path(workshop.folder / "runs/loop/weights").exists() is False
