"""Options of the task source ``harbor`` and of the criterion ``task_tests``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional

KEPT_PROCESSES = "kept_processes"
"""Key of a task's metadata: why its tests run beside the agent's processes."""
Result = Literal["reward", "pytest", "swebench", "sweperf", "mlebench", "swelancer"]


@frozen(kw_only=True)
class HarborOptions:
    """Task folders of Harbor and of Terminal-Bench 1."""

    path: Path = field(
        metadata=doc("A task folder, or a folder that is searched for task folders at any depth.")
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
        validator=optional(ge(1)),
        metadata=doc("Keep only the first N of the remaining tasks."),
    )
    time_factor: float = field(
        default=1.0,
        validator=gt(0),
        metadata=doc("Multiplies the tasks' time limits, of the agent and of the tests."),
    )
    cpus: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc("Processors of each container, instead of the task's own."),
    )
    memory_mb: int | None = field(
        default=None,
        validator=optional(ge(16)),
        metadata=doc("Memory of each container, MiB, instead of the task's own."),
    )
    keep_processes: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "Tasks, as globs of ids, whose tests run beside the agent's processes, which can then "
            "change the verdict. The tests of all others reach them over the network alone."
        ),
    )
    host_env: tuple[str, ...] | None = field(
        default=None,
        metadata=doc(
            "Variables of this machine that tasks may read; one that reads another is left out. "
            "Default: any, which a warning names; for `ale eval ORG/NAME` none."
        ),
    )
    invalid: Literal["skip", "error"] = field(
        default="skip",
        metadata=doc(
            "What to do with a folder that can't be run: log and skip it, or end the run."
        ),
    )


@frozen(kw_only=True)
class Hook:
    """A command to run between the agent and the tests."""

    command: str = field(metadata=doc("Command for sh -c, run in the workspace."))
    timeout_s: float = field(
        default=60.0, validator=gt(0), metadata=doc("Seconds for the command.")
    )
    user: str | None = field(
        default=None, metadata=doc("User that runs the command. Default: the sandbox's.")
    )
    service: str | None = field(
        default=None, metadata=doc("Service of the compose file. Default: the agent's.")
    )


@frozen(kw_only=True)
class Artifact:
    """A file or folder to store with the run, or to copy to a separate verifier's container."""

    source: str = field(metadata=doc("Path in the container."))
    destination: str | None = field(
        default=None,
        metadata=doc("Path below the kept artifacts. Default: the path in the container."),
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=doc("Patterns, as for tar --exclude, of what is left out of a folder.")
    )
    service: str | None = field(
        default=None, metadata=doc("Service of the compose file. Default: the agent's.")
    )


@frozen(kw_only=True)
class PhaseNetwork:
    """The network of a phase: the agent's work, or the tests."""

    network: bool = field(metadata=doc("Allow all hosts."))
    allowed_hosts: tuple[str, ...] = field(
        default=(), metadata=doc("Hosts to allow if not all are allowed.")
    )


@frozen(kw_only=True)
class SeparateVerifier:
    """A separate container for the tests."""

    image: str | None = field(default=None, metadata=doc("Image of the container."))
    build: str | None = field(
        default=None, metadata=doc("Host folder with a Dockerfile, or a compose file.")
    )
    tests_in_image: bool = field(default=False, metadata=doc("The image has the tests in /tests."))
    workdir: str | None = field(default=None, metadata=doc("Workspace in the container."))
    network: bool = field(default=False, metadata=doc("Allow all hosts."))
    allowed_hosts: tuple[str, ...] = field(
        default=(), metadata=doc("Hosts to allow if not all are allowed.")
    )
    env: Mapping[str, str] = field(factory=dict, metadata=doc("Environment variables."))
    cpus: float | None = field(default=None, metadata=doc("Processors."))
    memory_mb: int | None = field(default=None, metadata=doc("Memory, MiB."))
    setup: tuple[str, ...] = field(
        default=(), metadata=doc("Shell commands that are run before the tests.")
    )
    setup_timeout_s: float = field(
        default=120.0, validator=gt(0), metadata=doc("Seconds for each of these setup commands.")
    )


@frozen(kw_only=True)
class TaskTestsOptions:
    """Runs a task's own tests after the agent and reads their verdict."""

    tests: tuple[str, ...] = field(
        metadata=doc(
            "Absolute paths of host folders and scripts that are put into /tests; of a folder, its "
            "content."
        )
    )
    script: str = field(metadata=doc("File in /tests that is run."))
    result: Result = field(
        default="reward",
        metadata=doc(
            "Where the verdict is: 'reward', in reward.json or reward.txt in /logs/verifier; else "
            "in the output, which the named parser of Terminal-Bench reads."
        ),
    )
    timeout_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds for the tests; if they take longer, the value is 0."),
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc(
            "Environment variables for the tests; ${NAME} and ${NAME:-default} stand for the "
            "host's."
        ),
    )
    user: str | None = field(
        default=None, metadata=doc("User that the tests run as. Default: the sandbox's.")
    )
    artifacts: tuple[Artifact, ...] = field(
        default=(), metadata=doc("Files and folders that are kept with the run.")
    )
    collect: tuple[Hook, ...] = field(
        default=(), metadata=doc("Commands to run before the tests; their exit codes are ignored.")
    )
    restart_command: str | None = field(
        default=None,
        metadata=doc("Shell command that starts the container's own processes again."),
    )
    restart_timeout_s: float = field(
        default=120.0, validator=gt(0), metadata=doc("Seconds until these processes must be ready.")
    )
    min_rewards: Mapping[str, float] = field(
        factory=dict,
        metadata=doc(
            "Minimum rewards by name; if a reward is smaller, the task ends without its next step."
        ),
    )
    remove_tests: bool = field(
        default=False,
        metadata=doc("Remove tests and rewards afterwards, because another step follows."),
    )
    tests_network: PhaseNetwork | None = field(
        default=None, metadata=doc("Network of the tests, if it differs from the agent's.")
    )
    next_agent_network: PhaseNetwork | None = field(
        default=None, metadata=doc("Network of the agent in the next step, if it differs.")
    )
    separate_verifier: SeparateVerifier | None = field(
        default=None, metadata=doc("Run the tests in a separate container.")
    )
    same_shell: bool = field(
        default=False, metadata=doc("Run the tests in the agent's own shell, if it has one.")
    )
    agent_needs: tuple[str, ...] = field(
        default=(), metadata=doc("What the task offers its agent but no agent supports yet.")
    )
    record_key: str | None = field(
        default=None,
        metadata=doc("Key that signs the record of the sandbox, which a setup step has written."),
    )
