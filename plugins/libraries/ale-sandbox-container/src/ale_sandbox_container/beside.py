"""The other containers of a sandbox that is one of several."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_container.engine import Engine
from ale_sandbox_container.files import Files
from ale_sandbox_container.tarball import Ownership
from ale_sandbox_container.workers import Workers

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"


@frozen(kw_only=True)
class Neighbour:
    """One of them. The agent is not in it, unless the task lets it in."""

    engine: Engine
    container: str
    workers: Workers
    files: Files

    async def exec(self, command: str, *, timeout_s: float, user: str | None = None) -> int | None:
        """Run a line for ``/bin/sh -c``; its exit code, None where it did not end in time.

        What did not end goes on until the sandbox is closed.

        Raises:
            SandboxError: the container has ended.
        """
        argv = ["/bin/sh", "-c", command]
        return await self.workers.call(
            lambda: self.engine.run(self.container, argv, user=user, timeout_s=timeout_s)
        )

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out. Raises as `Sandbox.download`."""
        await self.files.download(source, target)


async def neighbours(
    engine: Engine, project: str, workers: Workers, clock: Callable[[], float]
) -> Mapping[str, Neighbour]:
    """The containers that docker compose has made under a name, by service."""
    found = await workers.call(lambda: engine.containers(f"{PROJECT}={project}"))
    return {
        box.labels[SERVICE]: Neighbour(
            engine=engine,
            container=box.id,
            workers=workers,
            files=Files(
                engine=engine,
                container=box.id,
                workdir="/",
                owner=Ownership(uid=0, gid=0),
                clock=clock,
                workers=workers,
            ),
        )
        for box in found
        if SERVICE in box.labels
    }


async def neighbour(
    engine: Engine, project: str, service: str, workers: Workers, clock: Callable[[], float]
) -> Neighbour:
    """The container of one service.

    Raises:
        SandboxError: there is none of that name.
    """
    found = await neighbours(engine, project, workers, clock)
    if service not in found:
        named = ", ".join(sorted(found)) or "none"
        raise SandboxError(f"there is no service {service!r} beside this sandbox (there: {named})")
    return found[service]
