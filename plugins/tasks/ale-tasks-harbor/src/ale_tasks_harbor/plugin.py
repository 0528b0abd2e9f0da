"""Offers the task source ``harbor`` and the criterion ``task_tests``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import BuildContext, Component, doc, ge, gt, hookimpl
from ale.protocols import Criterion, TaskSource

AUTO = "auto"
"""Of ``keep_processes``: as the files of each task say."""
Result = Literal["reward", "pytest", "swebench", "sweperf", "mlebench", "swelancer"]


@frozen(kw_only=True)
class HarborOptions:
    """Task folders of Harbor and of Terminal-Bench 1."""

    path: Path = field(
        metadata=doc("A task folder, or a folder that is searched for them, folders in it too.")
    )
    include: tuple[str, ...] = field(
        default=(), metadata=doc("Keep only tasks whose id matches one of these globs.")
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=doc("Leave out tasks whose id matches one of these globs.")
    )
    tags: tuple[str, ...] = field(
        default=(), metadata=doc("Keep only tasks that have at least one of these tags.")
    )
    difficulty: tuple[str, ...] = field(
        default=(), metadata=doc("Keep only tasks of these difficulties, such as easy.")
    )
    limit: int | None = field(
        default=None,
        validator=validators.optional(ge(1)),
        metadata=doc("Keep only the first so many of what is left."),
    )
    keep_processes: tuple[str, ...] = field(
        default=(AUTO,),
        metadata=doc(
            "Tasks whose agent's processes run on while they are graded; everywhere else they are "
            "ended first. Globs of ids, and 'auto' for each whose tests or solution have to do "
            "with a server or a daemon."
        ),
    )
    refuse: Literal["folder", "run"] = field(
        default="folder",
        metadata=doc("What a folder that can't be used stops: itself alone, or the whole run."),
    )


@frozen(kw_only=True)
class Hook:
    """A command that is run after the agent and before the tests."""

    command: str = field(metadata=doc("For sh -c, in the workspace."))
    timeout_s: float = field(default=60.0, validator=gt(0), metadata=doc("Seconds."))
    user: str | None = field(default=None, metadata=doc("Default: the sandbox's."))
    service: str | None = field(
        default=None, metadata=doc("Of the compose file. Default: the agent's.")
    )


@frozen(kw_only=True)
class Artifact:
    """A file or folder that is kept with the run, or carried to the tests' own container."""

    source: str = field(metadata=doc("Path in the container."))
    destination: str | None = field(
        default=None, metadata=doc("Path below the kept artifacts. Default: that in the container.")
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=doc("Of a folder these are left out; patterns as of tar --exclude.")
    )
    service: str | None = field(
        default=None, metadata=doc("Of the compose file. Default: the agent's.")
    )


@frozen(kw_only=True)
class Phase:
    """The network of a phase."""

    network: bool = field(metadata=doc("All of it is reached."))
    hosts: tuple[str, ...] = field(
        default=(), metadata=doc("What is reached where not all of it is.")
    )


@frozen(kw_only=True)
class SeparateVerifier:
    """A container of the tests' own."""

    image: str | None = field(default=None, metadata=doc("Its image."))
    build: str | None = field(
        default=None, metadata=doc("Host folder with a Dockerfile, or a compose file.")
    )
    bundled: bool = field(default=False, metadata=doc("The image has the tests in /tests."))
    workdir: str | None = field(default=None, metadata=doc("Its workspace."))
    network: bool = field(default=False, metadata=doc("All of it is reached."))
    hosts: tuple[str, ...] = field(
        default=(), metadata=doc("What is reached where not all of it is.")
    )
    env: Mapping[str, str] = field(factory=dict, metadata=doc("Variables."))
    cpus: float | None = field(default=None, metadata=doc("Processors."))
    memory_mb: int | None = field(default=None, metadata=doc("MiB."))
    setup: tuple[str, ...] = field(
        default=(), metadata=doc("Shell commands that are run before the tests.")
    )
    setup_s: float = field(default=120.0, validator=gt(0), metadata=doc("Seconds for each."))


@frozen(kw_only=True)
class TaskTestsOptions:
    """Runs a task's own tests after the agent and reads their verdict."""

    tests: tuple[str, ...] = field(
        metadata=doc(
            "Absolute paths of the host's folders and scripts that are put into /tests, folders "
            "by content."
        )
    )
    script: str = field(metadata=doc("The file in /tests that is run."))
    result: Result = field(
        default="reward",
        metadata=doc(
            "Where the verdict is: reward.json or reward.txt in /logs/verifier, or the output, "
            "read by this parser of Terminal-Bench."
        ),
    )
    timeout_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Seconds for the tests. Value 0 after them.")
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc("Variables for the tests; ${NAME} and ${NAME:-default} are the host's."),
    )
    user: str | None = field(
        default=None, metadata=doc("User that the tests run as. Default: the sandbox's.")
    )
    artifacts: tuple[Artifact, ...] = field(
        default=(), metadata=doc("Files and folders that are kept with the run.")
    )
    collect: tuple[Hook, ...] = field(
        default=(), metadata=doc("Commands that are run before the tests; their end is not judged.")
    )
    background: str | None = field(
        default=None,
        metadata=doc("Shell command for what started with the container; it is started again."),
    )
    background_s: float = field(
        default=120.0, validator=gt(0), metadata=doc("Seconds until that is ready.")
    )
    least: Mapping[str, float] = field(
        factory=dict, metadata=doc("Rewards by name; below one of them the task ends.")
    )
    clear: bool = field(
        default=False, metadata=doc("Leave neither tests nor rewards behind: more steps follow.")
    )
    during: Phase | None = field(
        default=None, metadata=doc("Network for the tests, where it is not the agent's.")
    )
    after: Phase | None = field(
        default=None, metadata=doc("Network of the agent that comes after the tests.")
    )
    apart: SeparateVerifier | None = field(
        default=None, metadata=doc("The tests run in a container of their own.")
    )
    same_shell: bool = field(
        default=False, metadata=doc("The tests run in the agent's own shell, where it has one.")
    )
    agent_needs: tuple[str, ...] = field(
        default=(), metadata=doc("What the task gives to a model's agent, which no agent takes.")
    )
    key: str | None = field(
        default=None,
        metadata=doc("Of the record that the task's setup step wrote of what was there before."),
    )


def _source(options: HarborOptions, context: BuildContext) -> TaskSource:
    from ale_tasks_harbor.source import HarborSource

    return HarborSource(options, environ=context.environ, new_id=context.new_id)


def _task_tests(options: TaskTestsOptions, context: BuildContext) -> Criterion:
    from ale_tasks_harbor.criterion import TaskTests

    return TaskTests(options, environ=context.environ, run_directory=context.run_directory)


@hookimpl
def ale_task_sources() -> Sequence[Component[HarborOptions, TaskSource]]:
    """One source: ``harbor``."""
    return [
        Component(
            "harbor",
            HarborOptions,
            _source,
            summary="Task folders of Harbor and Terminal-Bench, unchanged.",
        )
    ]


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """One criterion: ``task_tests``."""
    return [
        Component(
            "task_tests",
            TaskTestsOptions,
            _task_tests,
            summary="A task folder's own tests, put in place after the agent, give the reward.",
        )
    ]
