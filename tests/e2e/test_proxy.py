"""`ale proxy` as a process, between an agent and real servers: recorded, shown, trained on."""

import json
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ale.testing.openai_server import openai_server

PATIENCE_S = 300.0
STEPS = [
    {"text": "I look.", "calls": [{"name": "shell", "arguments": {"command": "touch done"}}]},
    {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]},
]


def post(url: str, path: str, body: Any, **headers: str) -> Any:
    data = json.dumps(body).encode()
    head = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"{url}/{path}", data=data, headers=head)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def started(workshop: Any, *arguments: str, **environ: str) -> tuple[Any, str]:
    """A command that prints its URL first, and that URL."""
    running = workshop.start(*arguments, **environ)
    url = workshop.wait_for(lambda: running.printed.strip(), timeout_s=PATIENCE_S)
    return running, url.splitlines()[0]


def stop(running: Any) -> Any:
    running.signal(signal.SIGTERM)
    done = running.ended(PATIENCE_S)
    assert done.code == 0, done.text
    return done


def ale(workshop: Any, *arguments: str) -> str:
    return str(workshop.succeeds(*arguments, timeout_s=PATIENCE_S).out)


def test_a_run_through_the_proxy_is_recorded_as_the_run_records_it(workshop: Any) -> None:
    """The agent of a run is an agent like any other: its episode, and the proxy's, agree."""
    workshop.task("t")
    # A server that lists its models isn't asked for a token before the run.
    script = {"models": [{"id": "m"}], "conversations": [{"match": "Do t", "steps": STEPS}]}
    with openai_server(script) as server:
        proxy, url = started(workshop, "proxy", server.url, "--port", "0", "--run", "runs/proxied")
        key = "sk-very-secret-key"
        llm = {"type": "openai", "base_url": url, "model": "m", "api_key_env": "KEY"}
        workshop.config(llm=llm, run={"name": "own", "directory": "own"})
        workshop.succeeds("run", "run.yaml", timeout_s=PATIENCE_S, KEY=key)
        post(url, "sessions/current/feedback", {"score": 1}, Authorization=f"Bearer {key}")
        stop(proxy)
    (own,) = workshop.episodes(next((workshop.folder / "own").iterdir())).values()
    (seen,) = workshop.episodes(workshop.folder / "runs" / "proxied").values()
    for mine, theirs in zip(own["trajectory"]["turns"], seen["trajectory"]["turns"], strict=True):
        for part in ("prompt", "tools", "fresh_context"):
            assert theirs.get(part) == mine.get(part)
        assert theirs["completion"]["message"] == mine["completion"]["message"]
    first = [turn["observations"][0]["content"] for turn in own["trajectory"]["turns"][:1]]
    assert [o["content"] for o in seen["trajectory"]["turns"][0]["observations"]] == first
    for path in (workshop.folder / "runs" / "proxied").rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes()
    shown = ale(workshop, "show", "runs/proxied")
    assert "1 of 1" in shown
    assert "touch done" in ale(workshop, "show", "runs/proxied", seen["id"])
    assert ale(workshop, "show", "credit", "runs/proxied", "--scheme", "ipa")
    ale(workshop, "report", "runs/proxied")


def test_a_recording_is_continued_and_survives_a_kill(workshop: Any) -> None:
    with openai_server({"*": {"text": "Yes."}}) as server:
        asked = {"model": "m", "messages": [{"role": "user", "content": "Well?"}]}
        command = ("proxy", server.url, "--port", "0", "--run", "runs/kept")
        for rollout, ending in enumerate((signal.SIGKILL, signal.SIGTERM)):
            proxy, url = started(workshop, *command)
            headers = {"X-Ale-Session": "s", "X-Ale-Task": "t"}
            post(url, "chat/completions", asked, **headers)
            ended = post(url, "sessions/s/feedback", {"score": 0.5})
            assert (ended["episode"], ended["turns"]) == (f"0-t-{rollout}", 1 + rollout)
            post(url, "chat/completions", asked, **headers)
            proxy.signal(ending)
            proxy.ended(PATIENCE_S)
    kept = workshop.folder / "runs" / "kept"
    rewards = {name: each["reward"] for name, each in workshop.episodes(kept).items()}
    assert rewards == {"0-t-0": 0.5, "0-t-1": 0.5, "0-t-2": None}
    manifest = json.loads((kept / "manifest.json").read_text())
    assert (manifest["n_tasks"], manifest["outcome"]["n_graded"]) == (1, 2)


def test_an_address_in_use_is_named_with_what_to_do(workshop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = workshop.ale("workers", "bridge", "--port", port, timeout_s=PATIENCE_S)
    assert done.code == 1, done.text
    reason = "Address already in use; --port 0 takes a free port"
    assert f"can't listen at 127.0.0.1:{port}: {reason}" in done.err
    assert not workshop.runs, "a run directory was left"
    other = ("proxy", "http://h/v1", "--host", "192.0.2.1", "--key-env", "KEY")
    elsewhere = workshop.ale(*other, KEY="sesame", timeout_s=PATIENCE_S)
    assert "--host is an address of this machine" in elsewhere.err


def test_mistakes_are_reported_before_anything_is_started(workshop: Any, tmp_path: Path) -> None:
    for arguments, message in (
        (["localhost:8000"], "URL: expected a URL"),
        (["http://me:secret@h/v1"], "the agent sends the key"),
        (["http://h/v1", "--key-env", "NOT_SET"], "NOT_SET is not set"),
        (["http://h/v1", "--host", "0.0.0.0"], "--key-env VARIABLE"),
        (["http://h/v1", "--config", "absent.yaml"], "absent.yaml"),
    ):
        done = workshop.ale("proxy", *arguments, timeout_s=PATIENCE_S)
        assert done.code == 2, done.text
        assert message in done.err
        assert "secret" not in done.text
    assert not (workshop.folder / "runs").exists()


@pytest.mark.needs("torch")
def test_a_policy_is_trained_on_what_passed(workshop: Any) -> None:
    """What was recorded are exactly the tokens and log-probabilities of the policy."""
    workshop.write("corpus.txt", "Say yes.\nYes.\nNo.\n" * 20)
    tiny = {"corpus": "corpus.txt", "layers": 1, "width": 32, "heads": 2, "mlp": 64}
    workshop.task("t")
    workshop.config(
        llm={"type": "policy", "tiny": tiny, "max_tokens": 8},
        agent={"type": "single-shot"},
        credit={"type": "grpo"},
        trainer={"type": "policy", "objective": "ipa", "lr": 1e-3},
        observers=[],
    )
    serving, upstream = started(workshop, "serve", "--config", "run.yaml", "--port", "0")
    tokens = ("--ask-tokens", "--logprobs-mode", "processed")
    command = ("proxy", upstream, "--port", "0", "--run", "runs/agent", *tokens)
    proxy, url = started(workshop, *command)
    for rollout in range(4):
        headers = {"X-Ale-Session": f"s{rollout}"}
        asked = {"model": "m", "messages": [{"role": "user", "content": "Say yes."}]}
        post(url, "chat/completions", {**asked, "seed": rollout}, **headers)
        post(url, f"sessions/s{rollout}/feedback", {"score": rollout % 2})
    stop(proxy)
    stop(serving)
    episodes = workshop.episodes(workshop.folder / "runs" / "agent").values()
    traces = [each["trajectory"]["turns"][0]["completion"]["tokens"] for each in episodes]
    assert all(len(trace["output_ids"]) == len(trace["logprobs"]) > 0 for trace in traces)
    ale(workshop, "data", "collect", "runs/agent", "--out", "raw.jsonl")
    ale(workshop, "data", "score", "--in", "raw.jsonl", "--out", "scored.jsonl", "--scheme", "grpo")
    train = ("train", "rows", "run.yaml", "--in", "scored.jsonl", "--out", "offline")
    assert "step 0: policy 1" in ale(workshop, *train)
    (step,) = workshop.lines("events.jsonl", workshop.folder / "offline")
    # The policy's own log-probabilities of the recorded tokens, over the recorded ones.
    mismatch = [step["metrics"][f"mismatch_{which}"] for which in ("min", "max")]
    assert mismatch == pytest.approx([1.0, 1.0], abs=1e-4)
