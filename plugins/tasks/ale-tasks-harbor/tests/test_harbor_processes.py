"""What runs beside the tests: what starts with the container, and what the agent may leave."""

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ale.plugin import BuildContext
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Stop, StopReason, Task, Trajectory
from ale_tasks_harbor.criterion import TaskTests
from ale_tasks_harbor.dockerfile import again, background, started
from ale_tasks_harbor.options import TaskTestsOptions
from ale_tasks_harbor.source import HarborSource

from .conftest import BESIDE, HARBOR, Write

Source = Callable[..., HarborSource]


@pytest.mark.parametrize(("globs", "kept"), [((), set()), (("named",), {"named"})])
def test_the_config_alone_says_whose_tests_run_beside_the_agents_processes(
    write: Write, source: Source, globs: Sequence[str], kept: set[str]
) -> None:
    write("asks", {**HARBOR, "tests/test.sh": "curl localhost\n"})
    write("named", HARBOR)
    tasks: Sequence[Task] = list(source(keep_processes=globs).load())
    assert {task.id for task in tasks if task.metadata.get("kept_processes")} == kept
    # The criterion ends them, not the run: tests may have to reach a server.
    assert all(task.keep_processes for task in tasks)


def test_a_step_keeps_what_its_task_keeps(write: Write, source: Source) -> None:
    files = {
        **HARBOR,
        "task.toml": '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n',
        "steps/a/instruction.md": "Do.\n",
        "steps/b/instruction.md": "Do.\n",
        "steps/b/tests/test.sh": "curl localhost\n",
    }
    write("one", files)
    (task,) = source(keep_processes=("one",)).load()
    said = [step.metadata.get("kept_processes") for step in (task, *task.steps)]
    assert said == ["the config says so"] * 3


def _sh(script: str, environment: Mapping[str, str], folder: Path) -> str:
    """Run it, wait for what it starts, and say what that was given."""
    subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{folder}:/usr/bin:/bin", **environment},
        cwd=folder,
        check=True,
    )
    written = folder / "written"
    return written.read_text() if written.exists() else ""


@pytest.mark.parametrize(
    ("entrypoint", "command", "of_image", "given"),
    [
        ((), (), None, ""),
        ((), (), "start", "sh|-c|sleep infinity|"),
        ((), (), "start -v 'a b'", "-v|a b|sh|-c|sleep infinity|"),
        ((), ("serve", "a b"), "start", "serve|a b|"),
        ((), ("start", "x"), None, "x|"),
        (("start", "own"), (), "false", "own|sh|-c|sleep infinity|"),
    ],
)
def test_what_starts_with_the_container_is_started(
    tmp_path: Path,
    entrypoint: Sequence[str],
    command: Sequence[str],
    of_image: str | None,
    given: str,
) -> None:
    start = tmp_path / "start"
    start.write_text("#!/bin/sh\nprintf '%s|' \"$@\" >written.new && mv written.new written\n")
    start.chmod(0o755)
    environment = {} if of_image is None else {"ALE_IMAGE_ENTRYPOINT": of_image}
    words = background(entrypoint, command)
    script = again(words, ["until [ -e written ]; do sleep 0.01; done"])
    assert _sh(script, environment, tmp_path) == given
    assert script.startswith(started(words)[0])


def test_a_check_that_does_not_pass_again_is_for_the_tests_to_tell(tmp_path: Path) -> None:
    words = background(("true",))
    assert _sh(again(words, ["exit 1"]) + "\necho went on >written", {}, tmp_path) == "went on\n"


_ALIVE = "grep -q '^State:.*sleeping' \"/proc/$(cat pid)/status\""
_STILL_THERE = f"""\
#!/bin/sh
if {_ALIVE}; then echo 1; else echo 0; fi >"$(dirname "$0")/../logs/verifier/reward.txt"
"""


async def _graded(
    folder: Path, stop: StopReason, *, remove_tests: bool = False
) -> tuple[Score, bool]:
    """Of a task that keeps processes; and is the agent's one alive after the tests?"""
    (folder / "workspace").mkdir()
    (folder / "test.sh").write_text(_STILL_THERE)
    options = TaskTestsOptions(
        tests=(str(folder / "test.sh"),), script="test.sh", remove_tests=remove_tests
    )
    criterion = TaskTests(options, BuildContext(), places=BESIDE)
    task = Task(id="one", goal="", keep_processes=True, metadata={"kept_processes": "says so"})
    sandbox = FolderSandbox(folder / "workspace")
    server = asyncio.ensure_future(sandbox.exec("echo $$ >new; mv new pid; exec sleep 1000"))
    assert (await sandbox.exec("until [ -e pid ]; do sleep 0.01; done")).exit_code == 0
    score = await criterion.grade(task, Trajectory(stop=Stop(reason=stop)), sandbox)
    alive = (await sandbox.exec(_ALIVE)).exit_code == 0
    await sandbox.close()
    await server
    return score, alive


async def test_what_the_agent_left_runs_during_the_tests_and_not_after_them(tmp_path: Path) -> None:
    score, alive = await _graded(tmp_path, "finished")
    assert (score.value, alive) == (1.0, False)
    assert "[the agent's processes kept running: says so]" in score.detail


async def test_it_runs_on_where_more_steps_follow(tmp_path: Path) -> None:
    score, alive = await _graded(tmp_path, "finished", remove_tests=True)
    assert (score.value, alive) == (1.0, True)


async def test_an_agent_whose_time_was_up_keeps_nothing(tmp_path: Path) -> None:
    score, alive = await _graded(tmp_path, "time_limit")
    assert (score.value, alive) == (0.0, False)
    assert "ran on" not in score.detail
    assert "[1 process of the agent was ended before the tests]" in score.detail


async def test_a_reward_on_a_scale_of_the_tasks_own_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    script = 'echo -7.5 >"$(dirname "$0")/../logs/verifier/reward.txt"\n'
    (tmp_path / "test.sh").write_text("#!/bin/sh\n" + script)
    options = TaskTestsOptions(tests=(str(tmp_path / "test.sh"),), script="test.sh")
    criterion = TaskTests(options, BuildContext(), places=BESIDE)
    sandbox = FolderSandbox(tmp_path / "workspace")
    score = await criterion.grade(Task(id="one", goal=""), Trajectory(), sandbox)
    await sandbox.close()
    assert (score.value, score.passed, score.unbounded) == (-7.5, False, True)
