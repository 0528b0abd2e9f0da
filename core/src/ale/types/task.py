"""Tasks: what the agent is asked, where it works and how the result is judged."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field

from ale.types._record import record
from ale.types.sandbox import SandboxFeature


@record
class CriterionSpec:
    """One criterion as the task names it; the run builds it by `type`."""

    type: str
    options: Mapping[str, Any] = field(factory=dict)
    weight: float = 1.0
    """Share of the task's reward, before division by the sum of all weights. Above 0."""
    file: str | None = None
    """Where the criterion was written, for error messages."""
    line: int | None = None


@record
class Constraints:
    """Limits that the task sets. The stricter of task and config wins; None sets none."""

    network: bool | None = None
    """May the sandbox reach the network? None leaves it to the config."""
    allowed_hosts: tuple[str, ...] = ()
    """Where it may not: hosts that it still reaches, by a proxy. Names, ``*.name`` for those below
    one, addresses, networks."""
    time_limit_s: float | None = None
    """Wall clock of the agent."""
    max_steps: int | None = None
    """Tool calls."""
    max_turns: int | None = None
    """Completions."""


@record
class Environment:
    """The machine that the task wants. A backend that can't give it says so."""

    image: str | None = None
    """Container image."""
    build: str | None = None
    """Host folder that holds a Dockerfile, or a compose file (``.yaml``): the sandbox is then its
    service ``main`` or ``client``, of the image above where there is one, and the others run with
    it."""
    workdir: str | None = None
    """The workspace, relative to the image's own working directory. None leaves it to the config.
    Only where there is an image."""
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
    Only where there is an image."""
    agent_user: str | None = None
    """User of the agent's commands, where it is not `user`; requires ``agent-user``. Each step of a
    task has its own."""
    requires: tuple[SandboxFeature, ...] = ()
    """Features without which the sandbox can't run the task; checked before anything is started."""


@record
class Task:
    """One task. Immutable; stored once per run in ``tasks.jsonl``."""

    schema: int = 1
    id: str
    goal: str
    """What the agent is told."""
    description: str = ""
    """What a person is told."""
    origin: str = ""
    """File or data set the task was read from."""
    tags: tuple[str, ...] = ()
    files: str | None = None
    """Host folder whose content is copied into the workspace before the setup steps."""
    setup_steps: tuple[str, ...] = ()
    """Shell commands that run before the agent. A failing one breaks the episode."""
    agent_setup_steps: tuple[str, ...] = ()
    """Shell commands that run after those, as the agent's user; likewise."""
    criteria: tuple[CriterionSpec, ...] = ()
    constraints: Constraints = Constraints()
    environment: Environment = Environment()
    keep_processes: bool = False
    """Leave what the agent started running while it is graded (a task that asks for a server)."""
    solution: tuple[str, ...] | None = None
    """Reference solution: shell commands, run in one session by the oracle agent."""
    steps: tuple["Task", ...] = ()
    """Tasks that follow one another in this task's sandbox, each set up, worked on and graded in
    its turn, until a score ends the task. Where there are any, this task's own goal, criteria and
    solution are not used; its setup steps come first."""
    steps_reward: Literal["mean", "last"] = "mean"
    """Which of the steps that were graded count for the reward."""
    metadata: Mapping[str, Any] = field(factory=dict)
