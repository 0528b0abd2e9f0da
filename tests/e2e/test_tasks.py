"""Every shipped task: its reference solution earns everything, doing nothing earns nothing.

Setup and solution see no program but those that tasks/README.md allows.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from ale.plugin import BuildContext
from ale.strict import from_plain, structure
from ale.testing.builders import trajectory
from ale.testing.fakes import FolderSandbox
from ale.types import CriterionSpec, Score, Task
from ale_criteria_shell.plugin import ale_criteria
from ale_tasks_tbp.options import TbpOptions
from ale_tasks_tbp.source import TbpSource

FOLDER = Path(__file__).resolve().parents[2] / "tasks"
TASKS = list(TbpSource(TbpOptions(path=FOLDER)).load())
# The examples are quick; all of them together take some twenty seconds.
EACH = [
    pytest.param(task, id=task.id, marks=[] if "basics" in task.tags else [pytest.mark.long])
    for task in TASKS
]
CRITERIA = {component.name: component for component in ale_criteria()}
COREUTILS = """
[ basename cat chmod comm cp cut date dd dirname du echo env expr false fold head id install join
kill ln ls md5sum mkdir mkfifo mktemp mv nl nohup od paste printenv printf pwd readlink realpath rm
rmdir seq sha1sum sha256sum shuf sleep sort split stat sum sync tac tail tee test timeout touch tr
true truncate uname uniq wc whoami
"""
OTHERS = "sh bash find xargs grep sed awk tar gzip gunzip zcat git python3"
HOST_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """An environment in which only the allowed programs are found."""
    folder = tmp_path_factory.mktemp("tools")
    for name in (COREUTILS + OTHERS).split():
        found = shutil.which(name, path=HOST_PATH)
        if found is not None:
            (folder / name).symlink_to(found)
    return {"PATH": str(folder)}


async def prepare(task: Task, sandbox: FolderSandbox, env: Mapping[str, str]) -> None:
    if task.files is not None:
        await sandbox.upload(Path(task.files), ".")
    for step in task.setup_steps:
        result = await sandbox.exec(step, env=env, timeout_s=60)
        assert result.exit_code == 0, f"{step}\n{result.stderr.decode()}"


async def solve(task: Task, sandbox: FolderSandbox, env: Mapping[str, str]) -> None:
    assert task.solution is not None, "there is no reference solution"
    session = await sandbox.session(env=env)
    for command in task.solution:
        result = await session.run(command, timeout_s=60)
        output = result.stdout.decode() + result.stderr.decode()
        assert result.exit_code == 0, f"{command}\nended with {result.exit_code}\n{output}"
    if not task.keep_processes:
        await sandbox.end_processes()


async def grade(task: Task, spec: CriterionSpec, sandbox: FolderSandbox) -> Score:
    component = CRITERIA[spec.type]
    assert component.options is not None
    written = from_plain(dict(spec.options), file=spec.file, line=spec.line)
    criterion = component.build(structure(written, component.options), BuildContext())
    score: Score = await criterion.grade(task, trajectory(), sandbox)
    return score


async def reward(task: Task, sandbox: FolderSandbox) -> tuple[float, str]:
    """The weighted share of the criteria that hold, and what the others said."""
    scores = [await grade(task, spec, sandbox) for spec in task.criteria]
    weights = [spec.weight for spec in task.criteria]
    earned = sum(weight * score.value for weight, score in zip(weights, scores, strict=True))
    return earned / sum(weights), "\n".join(s.detail for s in scores if not s.passed)


@pytest.mark.parametrize("task", EACH)
async def test_the_reference_solution_earns_everything(
    task: Task, tools: Mapping[str, str]
) -> None:
    sandbox = FolderSandbox()
    try:
        await prepare(task, sandbox, tools)
        await solve(task, sandbox, tools)
        earned, detail = await reward(task, sandbox)
        assert earned == 1.0, detail
    finally:
        await sandbox.close()


@pytest.mark.parametrize("task", EACH)
async def test_doing_nothing_earns_nothing(task: Task, tools: Mapping[str, str]) -> None:
    sandbox = FolderSandbox()
    try:
        await prepare(task, sandbox, tools)
        assert (await reward(task, sandbox))[0] == 0.0
    finally:
        await sandbox.close()


def test_there_are_enough_tasks_and_each_is_called_as_it_is_stored() -> None:
    assert len(TASKS) >= 28
    for task in TASKS:
        path = Path(task.origin)
        stem = path.parent.name if path.name == "task.yaml" else path.stem.replace("_", "-")
        assert task.id == stem


def test_basics_ls_is_where_the_documentation_says() -> None:
    (task,) = TbpSource(TbpOptions(path=FOLDER / "tbp_examples" / "basics_ls.yaml")).load()
    assert task.id == "basics-ls"


def test_every_suite_is_a_tag_or_the_examples() -> None:
    for task in TASKS:
        suite = Path(task.origin).relative_to(FOLDER).parts[0]
        assert suite in (*task.tags, "tbp_examples")
