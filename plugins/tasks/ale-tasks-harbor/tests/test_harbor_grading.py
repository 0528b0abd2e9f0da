"""One grading from hooks to reward, in a folder of this machine."""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ale.errors import GradingError
from ale.plugin import BuildContext
from ale.testing.fakes import FolderSandbox
from ale.types import Environment, SandboxSpec, Score, Task, Trajectory
from ale_tasks_harbor.checks import health_s, health_step
from ale_tasks_harbor.criterion import TaskTests
from ale_tasks_harbor.options import Artifact, Hook, SeparateVerifier, TaskTestsOptions
from ale_tasks_harbor.source import HarborSource
from ale_tasks_harbor.values import Values

from .conftest import BESIDE, HARBOR, Write

Source = Callable[..., HarborSource]
_WRITES_JSON = """cd "$(dirname "$0")/../logs/verifier"; echo '{"a": 0.5}' >re''ward.json\n"""
"""Without a word that could be found in it."""


class _WithAnother(FolderSandbox):
    """Has a second one beside it, as an engine would."""

    @asynccontextmanager
    async def open_sibling(self, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        folder = Path(self.workdir).parent / "apart" / "workspace"
        folder.mkdir(parents=True)
        other = FolderSandbox(folder)
        yield other
        await other.close()


async def graded(
    folder: Path,
    tests: Mapping[str, str],
    *,
    before: str = "true",
    env: Mapping[str, str] | None = None,
    task_id: str = "one",
    **options: object,
) -> Score:
    """By tests of these files, after a command of the agent's; kept in ``run``."""
    (folder / "workspace").mkdir()
    (folder / "of-the-task").mkdir()
    for name, text in tests.items():
        (folder / "of-the-task" / name).write_text(text)
    made = TaskTestsOptions(
        tests=(str(folder / "of-the-task"),) if tests else (),
        script="test.sh",
        **options,  # type: ignore[arg-type]
    )
    criterion = TaskTests(made, BuildContext(run_directory=folder / "run"), places=BESIDE)
    sandbox = _WithAnother(folder / "workspace")
    assert (await sandbox.exec(before)).exit_code == 0
    task = Task(id=task_id, goal="", environment=Environment(env=env or {}))
    try:
        return await criterion.grade(task, Trajectory(), sandbox)
    finally:
        await sandbox.close()


async def test_tests_have_the_tasks_variables(tmp_path: Path) -> None:
    script = 'cd "$(dirname "$0")/../logs/verifier"; echo "$OWN" >reward.txt\n'
    assert (await graded(tmp_path, {"test.sh": script}, env={"OWN": "0.5"})).value == 0.5


async def test_what_is_kept_of_a_task_with_a_long_id_is_in_a_folder_with_a_shorter_name(
    tmp_path: Path,
) -> None:
    script = 'echo 1 >"$(dirname "$0")/../logs/verifier/reward.txt"\n'
    score = await graded(tmp_path, {"test.sh": script}, task_id="n" * 250)
    assert (tmp_path / "run" / str(score.kept) / "test-stdout.txt").exists()


@pytest.mark.parametrize(
    "named", ["uvx --with harbor-rewardkit@0.1 rewardkit /tests\n", "reward.json\n"]
)
async def test_a_json_counts_where_the_tests_name_it_or_the_program_that_writes_it(
    tmp_path: Path, named: str
) -> None:
    tests = {"test.sh": "#!/bin/sh\n" + _WRITES_JSON, "more": named}
    assert (await graded(tmp_path, tests)).value == 0.5


async def test_a_json_does_not_count_where_only_code_under_test_can_have_written_it(
    tmp_path: Path,
) -> None:
    tests = {"test.sh": "#!/bin/sh\n. ../workspace/program\n"}
    with pytest.raises(GradingError, match=r"reward\.json was ignored"):
        await graded(tmp_path, tests, before=f"cat >program <<'E'\n{_WRITES_JSON}E\n")


async def test_a_json_counts_where_no_agent_has_been(tmp_path: Path) -> None:
    tests = {"test.sh": "#!/bin/sh\n" + _WRITES_JSON}
    assert (await graded(tmp_path, tests, separate_verifier=SeparateVerifier())).value == 0.5


@pytest.mark.parametrize(
    "files",
    [
        {"task.toml": '[verifier.environment]\ndocker_image = "judge:1"\n', "tests/test.sh": ""},
        {
            "task.toml": '[verifier]\nenvironment_mode = "separate"\n',
            "tests/test.sh": "",
            "tests/Dockerfile": "FROM judge:1\n",
        },
    ],
)
def test_tests_in_an_image_of_their_own_need_not_be_in_the_folder(
    files: Mapping[str, str], write: Write, source: Source
) -> None:
    write("one", {**HARBOR, **files})
    (task,) = source(invalid="error").load()
    assert task.criteria[0].options["separate_verifier"]["tests_in_image"]


async def test_hooks_are_for_bash(tmp_path: Path) -> None:
    hook = Hook(command="[[ -d . ]] && echo {1..3} >said")
    tests = {
        "test.sh": """if [ "$(cat said)" = '1 2 3' ]; then echo 1; else echo 0; fi \\
            >"$(dirname "$0")/../logs/verifier/reward.txt"\n"""
    }
    assert (await graded(tmp_path, tests, collect=(hook,))).value == 1.0


async def test_a_health_check_is_for_bash_and_waits_as_it_says(tmp_path: Path) -> None:
    check = {
        "command": "[[ -e ready ]] || { [[ -e asked ]] && touch ready; touch asked; false; }",
        "start_period_sec": 60,
        "start_interval_sec": 0,
    }
    (step,) = health_step(Values(check, file="", problems=[]))
    sandbox = FolderSandbox(tmp_path)
    began = time.monotonic()
    assert (await sandbox.exec(step)).exit_code == 0
    assert time.monotonic() - began < 30
    await sandbox.close()


@pytest.mark.parametrize(
    ("check", "seconds"),
    [
        ({}, 120.0),
        ({"command": "x"}, 120.0 + 30 + 5 + 3 * 35),
        (
            {"command": "x", "start_period_sec": 900, "timeout_sec": 2, "interval_sec": 0.5},
            120.0 + 900 + 2 + 5 + 3 * 2.5,
        ),
    ],
)
def test_a_health_check_has_all_the_time_that_it_may_take(
    check: Mapping[str, object], seconds: float, write: Write, source: Source
) -> None:
    assert health_s(Values(check, file="", problems=[])) == seconds
    table = "".join(f"{key} = {value!r}\n" for key, value in check.items())
    toml = f"[environment.healthcheck]\n{table}[verifier.environment.healthcheck]\n{table}"
    write("one", {**HARBOR, "task.toml": toml})
    (task,) = source(invalid="error").load()
    options = task.criteria[0].options
    assert (options["restart_timeout_s"], options["separate_verifier"]["setup_timeout_s"]) == (
        seconds,
        seconds,
    )


async def test_what_starts_again_has_the_time_that_the_options_say(tmp_path: Path) -> None:
    with pytest.raises(GradingError, match="could not be started again"):
        await graded(
            tmp_path, {"test.sh": "true\n"}, restart_command="sleep 30", restart_timeout_s=0.2
        )


async def test_artifacts_are_kept_as_they_were_before_the_tests(tmp_path: Path) -> None:
    tests = {
        "test.sh": """#!/bin/sh
            echo changed >out; rm -r gone; cd "$(dirname "$0")/../logs"
            echo more >artifacts/more; echo 1 >verifier/reward.txt\n"""
    }
    artifacts = (Artifact(source="out"), Artifact(source="gone"))
    command = "echo said >out; mkdir -p gone ../logs/artifacts; echo log >../logs/artifacts/log"
    score = await graded(tmp_path, tests, before=command, artifacts=artifacts)
    folder = tmp_path / "run" / str(score.kept) / "artifacts"
    listed = json.loads((folder / "manifest.json").read_text())
    assert [entry["status"] for entry in listed] == ["ok", "ok", "ok"]
    assert (folder / "out").read_text() == "said\n"
    (log,) = folder.rglob("log")
    assert [path.name for path in log.parent.iterdir()] == ["log"]


@pytest.mark.parametrize("remove_tests", [True, False])
async def test_what_was_kept_of_one_step_is_not_there_in_the_next(
    tmp_path: Path, remove_tests: bool
) -> None:
    tests = {"test.sh": 'echo 1 >"$(dirname "$0")/../logs/verifier/reward.txt"\n'}
    command = "mkdir -p ../logs/artifacts; echo log >../logs/artifacts/log"
    await graded(tmp_path, tests, before=command, remove_tests=remove_tests)
    left = tmp_path / "logs" / "artifacts"
    assert not remove_tests or left.stat().st_mode & 0o777 == 0o777, "whoever the next agent is"
    assert [path.name for path in left.iterdir()] == ([] if remove_tests else ["log"])


async def test_a_step_whose_tests_do_not_end_in_their_time_counts_as_0_and_is_the_last(
    tmp_path: Path,
) -> None:
    tests = {"test.sh": "#!/bin/sh\nexec sleep 30\n"}
    score = await graded(tmp_path, tests, timeout_s=0.2, remove_tests=True)
    assert (score.value, score.ends_task) == (0.0, True)


async def test_a_step_without_a_verdict_breaks_the_episode(tmp_path: Path) -> None:
    with pytest.raises(GradingError, match="wrote no reward"):
        await graded(tmp_path, {"test.sh": "true\n"}, remove_tests=True)
