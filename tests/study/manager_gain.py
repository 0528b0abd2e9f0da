"""A tiny manager that learns which of three feedbacks helps its worker, over seeds, with a control.

    python tests/study/manager_gain.py --seeds 1 2 3 4 5     # adds to docs/study/manager-gain.csv

A worker finds the harbour in half of its attempts; told to go north in nine of ten, told to go
south in one of ten, and told to wait in half of them. The manager says one of the three at random
at first. `ale workers manage --gain` measures what each was worth, and `ale loop` trains the
manager. In the control (`shuffled`) a worker acts on a feedback that was drawn for it and not on
the one that it got, so that gains are as large, and of somebody else's feedback.

Model server, proxy, bridge and loop are the commands, each a process; the manager is what
`ale workers manage` calls. Only the worker is a few lines here.
"""

import argparse
import csv
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ale.errors import AleError
from ale.runs import Registry, RunReader
from ale_proxy.manager.gain import PROMPT
from ale_proxy.manager.running import ManagerOptions
from ale_proxy.manager.running import run as manage

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "study" / "manager-gain.csv"
HELPS, HARMS, NEUTRAL = FEEDBACK = ("Go north.", "Go south.", "Wait a while.")
CHANCES = {HELPS: 0.9, HARMS: 0.1, NEUTRAL: 0.5}
GOAL = "Find the harbour."
FOUND, LOST = "I have found it.", "I am lost."
ROLLOUTS = 32
ROUNDS = 6
PATIENCE_S = 300.0
OBJECTIVE = {"type": "reinforce", "kl": {"coefficient": 0.1, "estimator": "k2"}}
"""With a KL term: without, a bad draw pushes the manager to tokens that it never says, for good."""

TASKS = f"""
from ale.plugin import Component, hookimpl
from ale.types import CriterionSpec, Task


class Worker:
    def load(self):
        options = {{"expected": {FOUND!r}, "answer": "message", "take": "all"}}
        yield Task(
            id="harbour",
            goal={GOAL!r},
            criteria=(CriterionSpec(type="exact_match", options=options),),
        )


class Manager:
    def load(self):
        for name, result in (("found", {FOUND!r}), ("lost", {LOST!r})):
            options = {{"expected": {HELPS!r}, "answer": "message", "take": "all"}}
            yield Task(
                id=name,
                goal={PROMPT!r}.format(goal={GOAL!r}, result=result),
                criteria=(CriterionSpec(type="exact_match", options=options),),
            )


@hookimpl
def ale_task_sources():
    return [
        Component("worker", None, lambda o, c: Worker(), summary="The worker's."),
        Component("manager", None, lambda o, c: Manager(), summary="The manager's."),
    ]
"""


def make_manager(folder: Path, seed: int) -> None:
    """A model that says one of the three at random, whatever the result."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from ale_llm_policy.options import TinyShape
    from ale_llm_policy.pretrained.tiny import make_tiny

    shape = TinyShape(layers=1, width=64, heads=2, kv_heads=1, mlp=128, vocabulary=400, context=512)
    prompts = [PROMPT.format(goal=GOAL, result=result) for result in (FOUND, LOST)]
    model, tokenizer = make_tiny(prompts, shape, seed=seed, whole=FEEDBACK)
    rows, labels = [], []
    for prompt in prompts:
        said = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
        for text in FEEDBACK:
            answer = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
            rows.append(torch.tensor([*ids, *answer]))
            labels.append(torch.tensor([-100] * len(ids) + answer))
    padded = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    wanted = pad_sequence(labels, batch_first=True, padding_value=-100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        model(input_ids=padded, labels=wanted).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def configs(folder: Path, ports: Sequence[int], seed: int) -> None:
    """The files that the commands read."""
    (folder / "harbour.py").write_text(TASKS)
    proxy = ports[1]
    llm = {"type": "policy", "model": "model", "max_tokens": 2}
    train = {
        "plugins": ["harbour.py"],
        "tasks": {"type": "manager"},
        "sandbox": {"type": "local"},
        "llm": llm,
        "agent": {"type": "single-shot"},
        "credit": {"type": "rloo"},
        "trainer": {"type": "policy", "objective": OBJECTIVE, "lr": 2e-3, "sync": "copy"},
        "evaluation": {"tasks": {"type": "manager"}, "rollouts": 1},
        "observers": [],
        "run": {"tasks_per_step": 1, "rollouts": ROLLOUTS, "seed": seed},
    }
    loop = {
        "train": "train.yaml",
        "directory": "loop",
        "episodes": ["said"],
        "serve": {"type": "servers", "model": "model", "registry": "servers"},
        "gate": {"threshold": -1.0},
        "poll_s": 0.1,
    }
    manager = {
        "plugins": ["harbour.py"],
        "tasks": {"type": "worker"},
        "sandbox": {"type": "local"},
        "llm": {
            "type": "openai",
            "base_url": f"http://127.0.0.1:{proxy}/v1",
            "model": "policy",
            "max_tokens": 2,
            "temperature": 1,
            "top_p": 1,
        },
    }
    for name, config in (("train", train), ("loop", loop), ("manager", manager)):
        (folder / f"{name}.yaml").write_text(json.dumps(config))


class Worker(threading.Thread):
    """Takes tasks from a bridge until it is stopped."""

    def __init__(
        self, url: str, seed: int, chances: Mapping[str, float], *, shuffled: bool
    ) -> None:
        super().__init__(daemon=True)
        self.stopped = False
        self._url, self._chances, self._shuffled = url, chances, shuffled
        self._random = random.Random(seed)

    def run(self) -> None:
        """Do what it is told, as well as it can."""
        while not self.stopped:
            task = self._ask("/tasks/take", {"worker": "ada", "wait_s": 1})
            if task is not None:
                result = FOUND if self._random.random() < self._chance(task["prompt"]) else LOST
                form = {"id": task["id"], "worker": "ada", "result": result}
                self._ask("/tasks/result", form)

    def _chance(self, prompt: str) -> float:
        told = next((each for each in FEEDBACK if each in prompt), NEUTRAL)
        if self._shuffled and told in prompt:
            told = self._random.choice(FEEDBACK)
        return self._chances[told]

    def _ask(self, path: str, form: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", json.dumps(form).encode(), headers)
        try:
            return json.loads(urllib.request.urlopen(request).read() or "null")
        except urllib.error.URLError:
            if self.stopped:
                return None
            raise


@contextmanager
def process(folder: Path, *arguments: str, says: str = "") -> Iterator[Path]:
    """A command that runs meanwhile; waits until its log says something."""
    log = folder / f"{arguments[0]}-{arguments[1].replace('/', '-')}.log"
    with log.open("wb") as file:
        running = subprocess.Popen(
            [sys.executable, "-m", "ale", *arguments], cwd=folder, stdout=file, stderr=file
        )
    try:
        until(lambda: says in log.read_text(), running, log)
        yield log
    finally:
        running.terminate()
        running.wait(60)


def until(
    done: Any, running: "subprocess.Popen[bytes] | None" = None, log: Path | None = None
) -> None:
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        ended = running is not None and running.poll() is not None
        if ended or time.monotonic() > deadline:
            raise AleError(f"it did not happen: {log and log.read_text()[-2000:]}")
        time.sleep(0.05)


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [each.getsockname()[1] for each in sockets]


def study(
    folder: Path,
    seed: int,
    *,
    shuffled: bool,
    rounds: int = ROUNDS,
    chances: Mapping[str, float] = CHANCES,
) -> list[float]:
    """The share of the feedback that helps, by round.

    Args:
        chances: that the worker finds the harbour, by the feedback; without any, as for `NEUTRAL`.
    """
    make_manager(folder / "model", seed)
    ports = model, proxy, bridge = free_ports(3)
    configs(folder, ports, seed)
    serve = ("serve", "--config", "train.yaml", "--port", str(model), "--register", "servers")
    tokens = ("--ask-tokens", "--logprobs-mode", "processed")
    with ExitStack() as stack:
        stack.enter_context(process(folder, *serve, says=str(model)))
        upstream = f"http://127.0.0.1:{model}/v1"
        record = ("proxy", upstream, "--port", str(proxy), "--run", "said", *tokens)
        stack.enter_context(process(folder, *record, says=str(proxy)))
        team = ("workers", "bridge", "--port", str(bridge), "--run", "team")
        stack.enter_context(process(folder, *team, says=str(bridge)))
        log = stack.enter_context(process(folder, "loop", "loop.yaml"))
        worker = Worker(f"http://127.0.0.1:{bridge}", seed, chances, shuffled=shuffled)
        stack.callback(setattr, worker, "stopped", True)
        worker.start()
        registry = Registry.installed()
        for number in range(1, rounds + 1):
            options = ManagerOptions(
                config=folder / "manager.yaml",
                bridge=f"http://127.0.0.1:{bridge}",
                name=f"seed-{seed}-round-{number}",
                rollouts=ROLLOUTS,
                gain=True,
            )
            manage(options, registry, lambda said: None)
            until(lambda number=number: f"version {number} " in log.read_text(), log=log)
    episodes = [each for each in RunReader(folder / "said").episodes if not each.broken]
    helped = [each.turns[0].completion.message.content == HELPS for each in episodes]
    return [sum(helped[n : n + ROLLOUTS]) / ROLLOUTS for n in range(0, len(helped), ROLLOUTS)]


def main() -> None:
    """Run what is asked for, and add it to the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--rewards", nargs="+", default=["gains", "shuffled"])
    chosen = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    for seed in chosen.seeds:
        for rewards in chosen.rewards:
            with tempfile.TemporaryDirectory() as folder:
                shares = study(Path(folder), seed, shuffled=rewards == "shuffled")
            new = not RESULTS.exists()
            with RESULTS.open("a", newline="") as file:
                rows = csv.writer(file, lineterminator="\n")
                if new:
                    rows.writerow(["rewards", "seed", "round", "helpful"])
                rows.writerows([rewards, seed, i + 1, share] for i, share in enumerate(shares))
            print(rewards, seed, *shares, flush=True)


if __name__ == "__main__":
    main()
