"""What a backend needs of an adapter whose engine can have sandboxes of several containers."""

from collections.abc import Callable
from typing import Protocol

from ale.protocols import ServiceContainer
from ale.types import SandboxSpec
from ale_sandboxing.container.engine import Plan
from ale_sandboxing.container.images import Images
from ale_sandboxing.container.threads import EngineThreads


class Composed(Protocol):
    """The containers of one task, whose images are there. Its methods block."""

    @property
    def main(self) -> str:
        """Image of the agent's container."""
        ...

    def create(self, plan: Plan) -> None:
        """Make all containers of one sandbox; the plan is that of the agent's."""
        ...

    def start(self, plan: Plan) -> None:
        """Start them and wait until all but the agent's are ready."""
        ...


class Composer(Protocol):
    """Reads and builds such tasks."""

    async def of(self, spec: SandboxSpec, images: Images) -> Composed:
        """The containers of a task whose build is a file that describes them."""
        ...

    async def service(
        self, project: str, name: str, threads: EngineThreads, clock: Callable[[], float]
    ) -> ServiceContainer:
        """Another container of a sandbox; `project` is the name of the agent's container.

        Raises:
            SandboxError: there is none of this name.
        """
        ...
