"""A remote service of which every fifth call fails: each episode is there once, and ran once."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SERVICE = Path(__file__).parents[2] / "plugins/sandbox/ale-sandbox-cwsandbox/tests/fake_service.py"
N_TASKS, N_ROLLOUTS = 10, 3
WANTED = {f"0-t{task:02}-{r}" for task in range(N_TASKS) for r in range(N_ROLLOUTS)}


@contextlib.contextmanager
def serving(folder: Path, **faults: Any) -> Iterator[str]:
    """The fake service of the sandbox's own tests; its address."""
    folder.mkdir()
    (folder / "faults").write_text(json.dumps(faults))
    with subprocess.Popen(
        [sys.executable, str(SERVICE), str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


@pytest.fixture
def calls(workshop: Any) -> Iterator[Path]:
    """A run of 30 episodes in remote sandboxes is ready; what the service was asked."""
    if shutil.which("bwrap") is None:
        pytest.skip("the fake service needs bubblewrap")
    folder = workshop.folder / "service"
    with serving(folder, share=0.2, quota=8) as url:
        for number in range(N_TASKS):
            # Holds only where every command of the episode has run once, and in its own sandbox.
            workshop.task(f"t{number:02}", check='test "$(cat log)" = "$(printf "a\\nb")"')
        workshop.environ.update(
            CWSANDBOX_API_KEY="the-fake-key", CWSANDBOX_BASE_URL=url, no_grpc_proxy="127.0.0.1"
        )
        commands = [{"shell": "echo a >> log"}, {"shell": "sleep 0.2; echo b >> log"}]
        finish = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}
        workshop.scripted(
            {"default": [*commands, finish]},
            sandbox={"type": "cwsandbox"},
            run={"rollouts": N_ROLLOUTS, "concurrency": 12, "retries": 0},
        )
        yield folder / "calls"


def check(workshop: Any) -> None:
    episodes = workshop.episodes()
    assert episodes.keys() == WANTED
    assert {episode["reward"] for episode in episodes.values()} == {1.0}
    assert not any(episode["earlier_failures"] for episode in episodes.values())
    listed = workshop.ale("sandbox", "list", "--type", "cwsandbox")
    assert (listed.code, "sb-" in listed.text) == (0, False), listed.text
    stored = [path for path in workshop.run.rglob("*") if path.is_file()]
    assert not any(b"the-fake-key" in path.read_bytes() for path in stored)


def test_a_run_over_a_service_that_fails_loses_and_doubles_nothing(
    workshop: Any, calls: Path
) -> None:
    workshop.succeeds("run", "run.yaml")
    check(workshop)
    asked = [json.loads(line) for line in calls.read_text().splitlines()]
    assert any(call["call"] == "over quota" for call in asked)
    assert sum(call["call"] == "made" for call in asked) == len(WANTED)


def test_a_run_that_is_killed_over_such_a_service_is_completed_by_resume(
    workshop: Any, calls: Path
) -> None:
    running = workshop.start("run", "run.yaml")
    workshop.wait_for(lambda: workshop.runs and (workshop.run / "episodes.jsonl").exists(), 60)
    workshop.wait_for(lambda: len(workshop.lines()) >= 5, 120)
    running.process.kill()
    running.ended()
    listed = workshop.ale("sandbox", "list", "--type", "cwsandbox")
    assert "sb-" in listed.text, listed.text
    workshop.succeeds("run", "--resume", str(workshop.run))
    check(workshop)
