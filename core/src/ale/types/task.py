"""Tasks: goal, environment, constraints and success criteria."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from attrs import field

from ale.types._record import record
from ale.types.sandbox import SandboxFeature

EnvironmentKind = Literal["chat", "terminal", "swe", "gui"]
ENVIRONMENT_KINDS: tuple[EnvironmentKind, ...] = get_args(EnvironmentKind)


@record
class CriterionSpec:
    """One success criterion of a task; the run builds the component `type`."""

    type: str
    options: Mapping[str, Any] = field(factory=dict)
    weight: float = 1.0
    """Share of the task's reward, before division by the sum of all weights. Above 0."""
    file: str | None = None
    """File in which the criterion is defined, for error messages."""
    line: int | None = None


@record
class Constraints:
    """Limits of the task. The stricter of task and config applies; None is no limit."""

    network: bool | None = None
    """Whether the sandbox has network access. None leaves it to the config."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that are reachable through a proxy even without network access: names, ``*.name`` for
    subdomains, addresses, networks."""
    time_limit_s: float | None = None
    """Wall-clock seconds for the agent."""
    max_steps: int | None = None
    """Most tool calls."""
    max_turns: int | None = None
    """Most completions."""


@record
class Environment:
    """The environment that the task requires. A backend that can't provide it raises an error."""

    image: str | None = None
    """Container image."""
    build: str | None = None
    """Host folder that holds a Dockerfile, or a compose file (``.yaml``). With the latter, the
    sandbox is its service ``main`` or ``client``, from the image above if there is one, and the
    other services run beside it."""
    workdir: str | None = None
    """The workspace, relative to the image's own working directory. None leaves it to the config.
    Only with an image."""
    env: Mapping[str, str] = field(factory=dict)
    """Environment of every command."""
    cpus: float | None = None
    """Processors, fractions allowed."""
    memory_mb: int | None = None
    """MiB."""
    storage_mb: int | None = None
    """MiB of disk."""
    user: str | None = None
    """User that commands run as, by name or number. None leaves it to the config and the image.
    Only with an image."""
    agent_user: str | None = None
    """User that the agent's commands run as, if not `user`; requires ``agent-user``. Each step of a
    task has its own."""
    requires: tuple[SandboxFeature, ...] = ()
    """Features without which the sandbox can't run the task; checked before anything is started."""
    own_files: bool = False
    """Commands of the task or its grading use absolute paths, which must not be this machine's: the
    sandbox needs files of its own. Checked before anything is started."""


@record
class Task:
    """One task. Immutable; stored once per run in ``tasks.jsonl``."""

    schema: int = 1
    id: str
    goal: str
    """The prompt for the agent."""
    description: str = ""
    """For human readers."""
    origin: str = ""
    """File or data set from which the task was read."""
    tags: tuple[str, ...] = ()
    files: str | None = None
    """Host folder whose content is copied into the workspace before the setup steps."""
    setup_steps: tuple[str, ...] = ()
    """Shell commands that run before the agent. If one fails, the episode is broken."""
    agent_setup_steps: tuple[str, ...] = ()
    """Shell commands that run after `setup_steps`, as the agent's user; failures count the same."""
    criteria: tuple[CriterionSpec, ...] = ()
    constraints: Constraints = Constraints()
    environment: Environment = Environment()
    keep_processes: bool = False
    """Keep processes of the agent running during grading (for a task that asks for a server)."""
    solution: tuple[str, ...] | None = None
    """Reference solution: shell commands, run in one session by the oracle agent."""
    reference_used: tuple[str, ...] | None = None
    """Paths that the tests have used when the reference solution passed, as `Score.used` has them:
    a later pass that used something of another kind is looked at again without it. None if it is
    not known. The task source ``validated`` fills it in."""
    reference_contested: bool = False
    """That pass is contested by itself, as it needs what counts as tools of the tests: new files at
    the same paths are then taken for work."""
    steps: tuple["Task", ...] = ()
    """Tasks run one after the other in this task's sandbox, each with setup, agent and grading,
    until a score ends the task. With steps, this task's own goal, criteria and solution are not
    used; its setup steps run first."""
    steps_reward: Literal["mean", "last"] = "mean"
    """Which graded steps count towards the reward."""
    metadata: Mapping[str, Any] = field(factory=dict)

    @property
    def environment_kind(self) -> str | None:
        """The kind of environment that it is about: one of `ENVIRONMENT_KINDS`, as its
        ``metadata.environment`` says. For scorers, and for the routing of tasks to workers. None
        where that says nothing or something else."""
        kind = self.metadata.get("environment")
        return kind if kind in ENVIRONMENT_KINDS else None
