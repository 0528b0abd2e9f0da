"""``run.concurrency: auto`` against fixed numbers, where three different things are scarce.

- ``commands``: each turn is a command that keeps one processor busy.
- ``model``: a server answers 12 requests at once, each in 0.25 seconds, and queues the others.
- ``quota``: a server answers each request in 0.25 seconds, and refuses with status 429 what is
  more than 40 requests in a second; the client waits and asks again, as is usual.

The episodes are alike. What is shown are episodes per second, as shares of the
best fixed number with which no episode broke. The aim is nine tenths, and no broken episode.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

ALE = str(Path(sys.executable).parent / "ale")
FIXED = (1, 2, 4, 8, 16, 32)
TURNS = 4
ANSWER_S, AT_ONCE, PER_S = 0.25, 12, 40.0
EPISODES = {"commands": 480, "model": 240, "quota": 240}
AIM = 0.9
BUSY = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done; echo x > done"


class Measured(NamedTuple):
    """One run."""

    per_s: float
    broken: int
    limit: int
    """The number that auto has come to, else the fixed one."""


class Server:
    """A model that always calls a tool, and in the last turn ends the episode."""

    def __init__(self, at_once: int | None, per_s: float | None) -> None:
        self._slots = None if at_once is None else asyncio.Semaphore(at_once)
        self._per_s = per_s
        self._tokens, self._filled = 0.0, time.monotonic()

    async def answer(self, request: Request) -> Response:
        """One completion, or a refusal."""
        messages = (await request.json())["messages"]
        if self._per_s is not None and not self._admits(self._per_s):
            error = {"error": {"message": "Too many requests.", "code": "rate_limit_exceeded"}}
            return JSONResponse(error, status_code=429)
        if self._slots is None:
            await asyncio.sleep(ANSWER_S)
        else:
            async with self._slots:
                await asyncio.sleep(ANSWER_S)
        turn = sum(each["role"] == "assistant" for each in messages)
        return JSONResponse(_completion(last=turn + 1 >= TURNS))

    def _admits(self, per_s: float) -> bool:
        now = time.monotonic()
        self._tokens = min(per_s / 4, self._tokens + (now - self._filled) * per_s)
        self._filled = now
        admitted = self._tokens >= 1
        self._tokens -= admitted
        return admitted


def _completion(*, last: bool) -> dict[str, object]:
    name, arguments = (
        ("finish", {"summary": "ok"}) if last else ("shell", {"command": "echo x > done"})
    )
    call = {"name": name, "arguments": json.dumps(arguments)}
    tool = {"id": "call-1", "type": "function", "function": call}
    message = {"role": "assistant", "content": None, "tool_calls": [tool]}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


@contextmanager
def serving(at_once: int | None, per_s: float | None) -> Iterator[str]:
    """The base URL of a server inside the block."""
    made = Server(at_once, per_s)
    app = Starlette(routes=[Route("/v1/chat/completions", made.answer, methods=["POST"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()


def write_config(folder: Path, llm: dict[str, object], episodes: int) -> Path:
    """Tasks, a script and a config."""
    (folder / "tasks").mkdir()
    check = {"type": "file_contains", "path": "done", "text": "x"}
    task = {"id": "work", "goal": "Work.", "success_criteria": [check]}
    (folder / "tasks" / "work.yaml").write_text(json.dumps(task))
    finish = {"calls": [{"name": "finish", "arguments": {"summary": "ok"}}]}
    script = {"default": [*[{"shell": BUSY}] * (TURNS - 1), finish]}
    (folder / "script.yaml").write_text(json.dumps(script))
    config = {
        "tasks": {"type": "tbp", "path": "tasks"},
        "sandbox": {"type": "local"},
        "llm": llm,
        "agent": {"type": "iflow"},
        "observers": [],
        "run": {"directory": "runs", "rollouts": episodes, "preflight": False},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder / "config.yaml"


def measure(config: Path, concurrency: int | str, episodes: int) -> Measured:
    """One run with this number of episodes at once; a small number needs fewer for its rate."""
    if isinstance(concurrency, int):
        episodes = min(episodes, 15 * concurrency)
    runs = config.parent / f"runs-{concurrency}"
    given = [f"--set=run.directory={runs}", f"--set=run.rollouts={episodes}"]
    command = [ALE, "run", str(config), "-n", str(concurrency), *given]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    (run,) = runs.iterdir()
    outcome = json.loads((run / "manifest.json").read_text())["outcome"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    changes = [event for event in events if event["event"] == "concurrency"]
    took = events[-1]["at"] - events[0]["at"]
    limit = changes[-1]["proved"] if changes else 8 if concurrency == "auto" else int(concurrency)
    return Measured(outcome["n_graded"] / took, outcome["n_broken"], limit)


def compare(workload: str, llm: dict[str, object]) -> bool:
    """Print a row; is the aim reached?"""
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder), llm, EPISODES[workload])
        found = {each: measure(config, each, EPISODES[workload]) for each in (*FIXED, "auto")}
    auto = found.pop("auto")
    best = max(each.per_s for each in found.values() if not each.broken)
    shares = "".join(
        f"{each.per_s / best:>8.2f}{'*' if each.broken else ' '}" for each in found.values()
    )
    ok = auto.per_s >= AIM * best and not auto.broken
    share = f"{auto.per_s / best:>8.2f}{'*' if auto.broken else ' '}"
    print(f"{workload:<10}{shares}{share}{auto.limit:>8}{best:>9.1f}  {'ok' if ok else 'MISSED'}")
    return ok


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    head = "".join(f"{n:>8} " for n in (*FIXED, "auto"))
    print(f"{'':<10}{head}{'found':>8}{'best /s':>9}   (*: episodes broke)")
    model = {"type": "openai", "model": "bench", "send_seed": False, "api_key_env": None}
    reached = [compare("commands", {"type": "scripted", "script": "script.yaml"})]
    for workload, at_once, per_s in (("model", AT_ONCE, None), ("quota", None, PER_S)):
        with serving(at_once, per_s) as url:
            reached.append(compare(workload, {**model, "base_url": url}))
    return int(not all(reached))


if __name__ == "__main__":
    sys.exit(main())
