"""Service containers: the other containers of a compose task."""

from pathlib import Path

from attrs import frozen

from ale_sandbox_docker.engine import DockerEngine
from ale_sandboxing.container.files import Files
from ale_sandboxing.container.threads import EngineThreads

PROJECT = "com.docker.compose.project"
SERVICE = "com.docker.compose.service"


@frozen(kw_only=True)
class ServiceContainer:
    """One service container. The agent has no access to it, unless the task gives it."""

    engine: DockerEngine
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
