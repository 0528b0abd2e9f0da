"""Service containers: the other containers of a compose task."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_container.api import Engine
from ale_sandbox_container.files import Files
from ale_sandbox_container.tarball import Ownership
from ale_sandbox_container.threads import EngineThreads

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"


@frozen(kw_only=True)
class ServiceContainer:
    """One service container. The agent has no access to it, unless the task gives it."""

    engine: Engine
    container: str
    threads: EngineThreads
    files: Files

    async def exec(self, command: str, *, timeout_s: float, user: str | None = None) -> int | None:
        """Run a line for ``/bin/sh -c``; its exit code, None where it did not end in time.

        A command that did not end runs on until the sandbox is closed.

        Raises:
            SandboxError: the container has ended.
        """
        argv = ["/bin/sh", "-c", command]
        return await self.threads.call(
            lambda: self.engine.run(self.container, argv, user=user, timeout_s=timeout_s)
        )

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out. Raises as `Sandbox.download`."""
        await self.files.download(source, target)


async def service_containers(
    engine: Engine, project: str, threads: EngineThreads, clock: Callable[[], float]
) -> Mapping[str, ServiceContainer]:
    """The containers that docker compose has made under a name, by service."""
    found = await threads.call(lambda: engine.containers(f"{PROJECT}={project}"))
    return {
        box.labels[SERVICE]: ServiceContainer(
            engine=engine,
            container=box.id,
            threads=threads,
            files=Files(
                engine=engine,
                container=box.id,
                workdir="/",
                owner=Ownership(uid=0, gid=0),
                clock=clock,
                threads=threads,
            ),
        )
        for box in found
        if SERVICE in box.labels
    }


async def service_container(
    engine: Engine, project: str, service: str, threads: EngineThreads, clock: Callable[[], float]
) -> ServiceContainer:
    """The container of one service.

    Raises:
        SandboxError: there is none of that name.
    """
    found = await service_containers(engine, project, threads, clock)
    if service not in found:
        named = ", ".join(sorted(found)) or "none"
        raise SandboxError(f"the task has no service {service!r} (it has: {named})")
    return found[service]
