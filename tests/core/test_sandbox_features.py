"""Features that a task requires of its sandbox are checked before anything is started."""

from typing import Any, get_args

from ale._run.episode import sandbox_spec
from ale._run.parts import missing_features
from ale.protocols import FEATURES
from ale.testing.fakes import FolderBackend
from ale.types import (
    Capabilities,
    Constraints,
    Environment,
    SandboxFeature,
    SandboxSpec,
    Task,
    replace,
)

from .conftest import make_tasks


class _Backend(FolderBackend):
    capabilities: Capabilities = replace(FolderBackend.capabilities, features=("list-sessions",))


def test_a_task_that_requires_nothing_runs_everywhere() -> None:
    assert missing_features(Task(id="t", goal=""), FolderBackend()) == []


def test_a_required_feature_that_the_sandbox_has_is_accepted() -> None:
    task = Task(id="t", goal="", environment=Environment(requires=("list-sessions",)))
    assert missing_features(task, _Backend()) == []
    (problem,) = missing_features(task, FolderBackend())
    assert problem.message == (
        "task 't' requires of its sandbox: list-sessions; 'folder' lacks this"
    )


def test_the_features_of_steps_and_an_agents_user_count_too() -> None:
    step = Task(id="s", goal="", environment=Environment(requires=("change-network",)))
    whole = Environment(agent_user="me", requires=("list-sessions",))
    task = Task(id="t", goal="", origin="task.toml", environment=whole, steps=(step,))
    (problem,) = missing_features(task, _Backend())
    assert "sandbox: agent-user, change-network; 'folder'" in problem.message
    assert (problem.file, problem.path) == ("task.toml", "sandbox")


def test_files_of_its_own_are_had_where_files_are_isolated() -> None:
    step = Task(id="s", goal="", environment=Environment(own_files=True))
    task = Task(id="t", goal="", steps=(step,))
    (problem,) = missing_features(task, FolderBackend())
    assert "requires of its sandbox: files of its own; 'folder' lacks this" in problem.message
    backend = _Backend()
    backend.capabilities = replace(FolderBackend.capabilities, filesystem_isolation=True)
    assert missing_features(task, backend) == []


def test_a_sandbox_is_told_what_the_task_and_its_steps_require() -> None:
    step = Task(id="s", goal="", environment=Environment(requires=("change-network",)))
    whole = Environment(requires=("list-sessions", "change-network"))
    spec = sandbox_spec(Task(id="t", goal="", environment=whole, steps=(step, step)), {})
    assert spec.requires == ("list-sessions", "change-network")


async def test_a_sandbox_is_opened_with_the_limits_and_the_network_of_its_task(
    bench: Any, workplace: Any
) -> None:
    environment = {"workdir": "there", "env": {"K": "v"}, "cpus": 0.5, "memory_mb": 64}
    opened: dict[str, SandboxSpec] = {}

    def tasks(n: int) -> list[Task]:
        return [
            replace(
                task, environment=Environment(**environment), constraints=Constraints(network=on)
            )
            for task, on in zip(make_tasks(n), (False, None, True), strict=True)
        ]

    def open_hook(spec: SandboxSpec) -> None:
        opened[spec.tags["episode"]] = spec

    bench.tasks, bench.open_hook = tasks, open_hook
    await workplace.ran(workplace.config(n=3))
    assert {id: spec.network for id, spec in opened.items()} == {
        "0-t0-0": False,
        "0-t1-0": None,
        "0-t2-0": True,
    }
    for spec in opened.values():
        assert {name: getattr(spec, name) for name in environment} == environment


def test_every_feature_has_a_protocol() -> None:
    assert set(FEATURES) == set(get_args(SandboxFeature))
