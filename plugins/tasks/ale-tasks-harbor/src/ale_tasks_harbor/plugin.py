"""Registers the task source ``harbor`` and the criterion ``task_tests``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import BuildContext, Component, doc, ge, gt, hookimpl
from ale.protocols import Criterion, TaskSource

AUTO = "auto"
"""In ``keep_processes``: decided by each task's files."""
Result = Literal["reward", "pytest", "swebench", "sweperf", "mlebench", "swelancer"]


@frozen(kw_only=True)
class HarborOptions:
    """Task folders of Harbor and of Terminal-Bench 1."""

    path: Path = field(
        metadata=doc("A task folder, or a folder that is searched for them recursively.")
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
        metadata=doc("Keep only the first so many of the selected tasks."),
    )
    keep_processes: tuple[str, ...] = field(
        default=(AUTO,),
        metadata=doc(
            "Tasks whose agent's processes keep running during the tests; in other tasks they are "
            "ended first. Globs of ids, and 'auto' for tasks whose tests or solution use a server "
            "or a daemon."
        ),
    )
    refuse: Literal["folder", "run"] = field(
        default="folder",
        metadata=doc("An unsupported folder: leave it out, or stop the run."),
    )


@frozen(kw_only=True)
class Hook:
    """A command that is run between the agent and the tests."""

    command: str = field(metadata=doc("For sh -c, in the workspace."))
    timeout_s: float = field(default=60.0, validator=gt(0), metadata=doc("Seconds."))
    user: str | None = field(default=None, metadata=doc("Default: the sandbox's."))
    service: str | None = field(
        default=None, metadata=doc("Of the compose file. Default: the agent's.")
    )


@frozen(kw_only=True)
class Artifact:
    """A file or folder that is stored with the run, or copied to the separate verifier."""

    source: str = field(metadata=doc("Path in the container."))
    destination: str | None = field(
        default=None, metadata=doc("Path below the kept artifacts. Default: that in the container.")
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=doc("Patterns of files to leave out of a folder, as of tar --exclude.")
    )
    service: str | None = field(
        default=None, metadata=doc("Of the compose file. Default: the agent's.")
    )


@frozen(kw_only=True)
class Phase:
    """The network during a phase."""

    network: bool = field(metadata=doc("Full access."))
    hosts: tuple[str, ...] = field(
        default=(), metadata=doc("Hosts that are reachable without full access.")
    )


@frozen(kw_only=True)
class SeparateVerifier:
    """A separate container for the tests."""

    image: str | None = field(default=None, metadata=doc("Its image."))
    build: str | None = field(
        default=None, metadata=doc("Host folder with a Dockerfile, or a compose file.")
    )
    bundled: bool = field(default=False, metadata=doc("The image has the tests in /tests."))
    workdir: str | None = field(default=None, metadata=doc("Its workspace."))
    network: bool = field(default=False, metadata=doc("Full access."))
    hosts: tuple[str, ...] = field(
        default=(), metadata=doc("Hosts that are reachable without full access.")
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
    """Run a task's own tests after the agent and read their verdict."""

    tests: tuple[str, ...] = field(
        metadata=doc(
            "Absolute host paths of scripts and folders that are copied to /tests; of a folder "
            "its content."
        )
    )
    script: str = field(metadata=doc("The file in /tests that is run."))
    result: Result = field(
        default="reward",
        metadata=doc(
            "Source of the verdict: reward.json or reward.txt in /logs/verifier, or the output, "
            "read by this parser of Terminal-Bench."
        ),
    )
    timeout_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Time limit of the tests, seconds; after it the value is 0."),
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc(
            "Variables for the tests; ${NAME} and ${NAME:-default} are replaced from the host's."
        ),
    )
    user: str | None = field(
        default=None, metadata=doc("User that the tests run as. Default: the sandbox's.")
    )
    artifacts: tuple[Artifact, ...] = field(
        default=(), metadata=doc("Files and folders that are stored with the run.")
    )
    collect: tuple[Hook, ...] = field(
        default=(),
        metadata=doc("Commands that are run before the tests; their exit codes are ignored."),
    )
    background: str | None = field(
        default=None,
        metadata=doc("Shell command that starts the container's own services again."),
    )
    background_s: float = field(
        default=120.0, validator=gt(0), metadata=doc("Seconds to wait until they are ready.")
    )
    least: Mapping[str, float] = field(
        factory=dict, metadata=doc("Minimum rewards by name; below one of them the task ends.")
    )
    clear: bool = field(
        default=False,
        metadata=doc("Remove tests and rewards afterwards, because more steps follow."),
    )
    during: Phase | None = field(
        default=None, metadata=doc("Network during the tests, if it differs from the agent's.")
    )
    after: Phase | None = field(default=None, metadata=doc("Network of the agent after the tests."))
    apart: SeparateVerifier | None = field(
        default=None, metadata=doc("Run the tests in a separate container.")
    )
    same_shell: bool = field(
        default=False, metadata=doc("Run the tests in the agent's own shell, if it has one.")
    )
    agent_needs: tuple[str, ...] = field(
        default=(), metadata=doc("Inputs of the task that no agent of ale supports.")
    )
    key: str | None = field(
        default=None,
        metadata=doc("Key of the record that the setup step wrote of the initial state."),
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
