"""Places to run commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ale.types import (
        Capabilities,
        CarriedChange,
        EgressLedger,
        ExecResult,
        ImageInfo,
        SandboxFeature,
        SandboxInfo,
        SandboxSpec,
    )

DEFAULT_OUTPUT_BYTES = 1 << 20


@runtime_checkable
class Session(Protocol):
    """A persistent shell: ``cd``, variables and background jobs last from command to command."""

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command and wait until it ends, but not for its background jobs.

        A command that ends the shell (``exit 3``) gives its code and closes the session. A command
        that runs out of time is killed with everything it started, which also closes the session,
        and the result has `timed_out` set. The next command then needs a new session.

        Args:
            timeout_s: seconds; None waits for ever.
            max_output_bytes: limit for stdout and for stderr each; head and tail are kept.

        Raises:
            SandboxError: the session is closed, or the sandbox is gone.
        """
        ...

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        ...

    async def close(self) -> None:
        """End the shell and what it started. May be called repeatedly."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """A place to run commands. Nothing that was started in it outlives `close`.

    Of the kinds of `SandboxError`, `SandboxDamagedError` says that what ran inside has made the
    sandbox useless: the agent's failure, if it did that. `SandboxLostError`: nobody can tell.
    """

    @property
    def id(self) -> str: ...

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace, as a command sees it."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in a process group of its own.

        Args:
            command: a line for ``/bin/sh -c``, or an argument vector.
            timeout_s: seconds, after which the whole tree is killed; None waits for ever.
            stdin: bytes to feed; None closes it.
            env: added to the sandbox's environment.
            cwd: relative to the workspace, or absolute.
            user: name or number; only if the backend can switch users.
            max_output_bytes: limit for stdout and for stderr each; head and tail are kept.

        Returns:
            The true exit code (128 + n for signal n; 127 for a missing command) after any
            duration. When a child keeps the output open, the result comes with the command's end.

        Raises:
            SandboxError: the sandbox is closed or gone.
            UnsupportedError: `user` is given, but the backend can't switch users.
        """
        ...

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Session:
        """Open a persistent shell.

        If `cwd` is None and the workspace can't be entered, the shell starts in a folder that can,
        and its first command's stderr begins with a line that says so.

        Raises:
            SandboxDamagedError: the sandbox's own programs start no shell any more.
            SandboxError: the sandbox is closed or gone.
        """
        ...

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes. Relative paths are relative to the workspace.

        Raises:
            OSError: EFBIG: without `max_bytes`, it has more than `ale.sandboxes.READ_BYTES`.
            FileNotFoundError, IsADirectoryError: as their names say.
            PermissionError: it may not be read, is not a regular file, or leads out of the sandbox.
            OSError: another mistake in the path: a file used as a folder, a loop of links, a name
                that is too long.
            SandboxError: the sandbox is gone. Never because of the path.
        """
        ...

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a whole file, making parent folders. Raises as `read`."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in, keeping modes and links. Raises as `read`."""
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out, keeping modes; links that lead out are not followed.

        Raises:
            OSError: as `read`, but folders are copied. EFBIG: it has more than
                `ale.sandboxes.DOWNLOAD_BYTES` or `DOWNLOAD_ENTRIES`; what was copied by then is
                left in `target`.
        """
        ...

    async def end_processes(self) -> int:
        """Kill every process in the sandbox, sessions included; returns the number killed.

        The run calls it after the agent, before grading, unless the task asks for a server.
        """
        ...

    async def fork(self) -> Sandbox:
        """An independent copy of the files as they are now. Close it like any sandbox.

        It has the user, the limits and the network that this sandbox has now, not those that its
        spec began with.

        Raises:
            UnsupportedError: `capabilities.fork` is ``replay``.
        """
        ...

    async def snapshot(self) -> str:
        """Keep the files as they are now; returns a reference for `SandboxBackend.restore`.

        Raises:
            UnsupportedError: `capabilities.snapshot` is False.
        """
        ...

    async def close(self) -> None:
        """Remove the whole sandbox. May be called repeatedly."""
        ...


@runtime_checkable
class ListsSessions(Protocol):
    """The feature ``list-sessions``: a sandbox that knows its open sessions."""

    @property
    def sessions(self) -> Sequence[Session]:
        """The open sessions, oldest first."""
        ...


@runtime_checkable
class SwitchesUser(Protocol):
    """The feature ``switch-user``: a sandbox that can run commands as another user."""

    async def switch_user(self, user: str | None) -> None:
        """From now on, run commands and sessions, and own uploaded files, as this user.

        Args:
            user: name or number; None for the user that the sandbox was opened with.

        Raises:
            SandboxError: there is no such user in the sandbox.
        """
        ...


@runtime_checkable
class HasAgentUser(Protocol):
    """The feature ``agent-user``: a sandbox whose agent runs as another user than its set-up."""

    async def agent_started(self, user: str | None) -> None:
        """Called by the run after the set-up of a task, or of each of its steps.

        From now on commands run as `user`, who also owns the workspace if the image has none.
        None: the user with which the sandbox was opened.

        Raises:
            SandboxError: there is no such user in the sandbox.
        """
        ...


@runtime_checkable
class ChangesNetwork(Protocol):
    """The feature ``change-network``: a sandbox whose network can change while it runs."""

    async def set_network(self, network: bool, hosts: Sequence[str] = ()) -> Mapping[str, str]:
        """Connect the sandbox to the network, or to these hosts alone.

        If the backend's options allow no network, none is connected.

        Args:
            hosts: hosts that can be reached if `network` is False, as `SandboxSpec.allowed_hosts`.

        Returns:
            The environment variables that name a proxy; empty if there is none.

        Raises:
            UnsupportedError: this change is not possible here.
        """
        ...


@runtime_checkable
class RecordsEgress(Protocol):
    """A sandbox that sees what passes between it and the hosts outside."""

    def egress(self) -> EgressLedger:
        """Connections that passed or were refused so far, of a bounded size.

        They are stored with the episode.

        Called once at the end of an episode, while the sandbox is still open. Does not raise.
        """
        ...


@runtime_checkable
class OpensSiblings(Protocol):
    """The feature ``open-sibling``: a sandbox that can open another one of its backend."""

    def open_sibling(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox with this one's tags, removed on exit.

        It has no network if this one has none now, unless the spec asks for one.

        Raises as `SandboxBackend.open`.
        """
        ...


class Guarded(Protocol):
    """The folder in which a check writes its verdict."""

    def foreign(self, name: str) -> Sequence[str]:
        """Which processes, in words, may have written a file there that are not the check's own.

        These run a file of the agent's, or were started by one, or their parent has left them.
        """
        ...


@runtime_checkable
class Judge(Protocol):
    """A fresh sandbox with the changes that were made in the agent's."""

    @property
    def sandbox(self) -> Sandbox: ...

    async def used(self) -> Sequence[CarriedChange]:
        """The carried files and links that were read, run, followed or changed in it so far, and
        everything of the image's that was removed, of which nobody can tell.

        It is seen from outside: nothing that runs in the sandbox can hide its own files.
        """
        ...

    async def watch(self, folders: Mapping[str, int]) -> None:
        """Follow from now on, and again once it is `settled`, which names come and go.

        Args:
            folders: how many levels of folders below each are watched too.

        Raises:
            SandboxError: the sandbox is gone.
        """
        ...

    async def settled(self) -> None:
        """Note how its files are now: `made` tells of later changes. Raises as `watch`."""
        ...

    async def made(self) -> Sequence[CarriedChange]:
        """The changes in it since it was opened, or since it was last `settled`.

        A file that the agent has added counts as added also if it was replaced. In a watched folder
        so do a file and, with a slash at its end, a folder that have come and are gone again; of
        another folder, with a slash at its end, "changed" says that something is gone again. A
        watched folder is "changed" if another one was in its place.
        """
        ...

    async def has(self, path: str, *, image: bool = False) -> bool:
        """Whether there is something at an absolute path; with `image`, in the image alone."""
        ...

    def guarded(self, folder: str) -> AbstractAsyncContextManager[Guarded]:
        """Meanwhile, notes who opens files whose names begin with ``reward`` in a folder.

        Raises (on entry):
            UnsupportedError: the kernel does not show it.
        """
        ...


@runtime_checkable
class OpensJudge(Protocol):
    """The feature ``judge``: a sandbox whose changes can be judged in a fresh one.

    The fresh one has processes and mounts of its own, and the network of this one, whose processes
    live on. So a server can be reached, and nothing can be traced, killed or written from here.
    """

    async def prepare_judge(self) -> None:
        """Begin to start the next judge, which then opens sooner; returns at once.

        The run calls it before the agent begins, if a judge will be opened.
        """
        ...

    def open_judge(self, without: Collection[str] = ()) -> AbstractAsyncContextManager[Judge]:
        """A fresh sandbox with the files as they are now; removed on exit.

        Args:
            without: paths for which it has what the image has. Of a folder all in it; with a slash
                at its end, the image's content comes back beside the agent's. A name without any
                slash stands for all files and folders of this name, ``/`` for all that was changed
                since the agent began.

        Raises (on entry):
            UnsupportedError: the engine's files can't be read from here; the message says why.
            SandboxDamagedError: with these files no sandbox starts.
            SandboxError: it could not be opened.
        """
        ...

    async def left_running(self) -> int:
        """How many processes run in this sandbox that were started by commands, sessions apart."""
        ...


@runtime_checkable
class MakesScratchFolders(Protocol):
    """The feature ``scratch-folder``: a sandbox that makes a folder without starting a process."""

    def scratch_folder(self, name: str) -> AbstractAsyncContextManager[str]:
        """A new empty folder where temporary files go, removed on exit with its content.

        No other user can access it.

        Args:
            name: an unguessable name, which nothing else there may have.

        Returns:
            Its absolute path, as a command sees it.

        Raises (on entry):
            SandboxError: the folder could not be made, or the sandbox is gone.
        """
        ...


@runtime_checkable
class ServiceContainer(Protocol):
    """Another container of the same task."""

    async def exec(self, command: str, *, timeout_s: float, user: str | None = None) -> int | None:
        """Run a line for ``/bin/sh -c``; its exit code, or None if it did not end in time.

        Raises:
            SandboxError: the container has ended.
        """
        ...

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out. Raises as `Sandbox.download`."""
        ...


@runtime_checkable
class HasServiceContainers(Protocol):
    """The feature ``service-containers``: a sandbox that is one of a task's containers."""

    async def service(self, name: str) -> ServiceContainer:
        """The container of a service.

        Raises:
            SandboxError: the task has no service of this name.
        """
        ...


FEATURES: Mapping[SandboxFeature, type] = {
    "agent-user": HasAgentUser,
    "change-network": ChangesNetwork,
    "judge": OpensJudge,
    "list-sessions": ListsSessions,
    "open-sibling": OpensSiblings,
    "scratch-folder": MakesScratchFolders,
    "service-containers": HasServiceContainers,
    "switch-user": SwitchesUser,
}
"""The protocol of each feature in `Capabilities.features`."""


@runtime_checkable
class SandboxBackend(Protocol):
    """Opens sandboxes of one kind."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox, removed on exit, cancellation included.

        Raises (on entry):
            SandboxError: it could not be opened; the message says what would help.
            UnsupportedError: the spec asks for something that the backend can't provide.
        """
        ...

    def restore(self, ref: str, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox with the files of a snapshot. Raises as `open`.

        If the snapshot was taken without a network, and the spec says nothing about one, it has
        none either.
        """
        ...

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox of this backend on this machine, of both live and dead runs."""
        ...

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove the sandboxes that dead runs have left; returns those removed."""
        ...

    async def aclose(self) -> None:
        """Close connections and helpers. May be called again."""
        ...


@runtime_checkable
class KeepsImages(Protocol):
    """A sandbox backend that makes images, which stay for later runs."""

    async def images(self) -> Sequence[ImageInfo]:
        """Every image that it has made, of live and of dead runs.

        Raises:
            SandboxError: they can't be listed.
        """
        ...

    async def remove_builds(self) -> Sequence[ImageInfo]:
        """Remove the images of tasks' Dockerfiles that no container uses, and return them.

        Raises:
            SandboxError: one could not be removed; all the rest is.
        """
        ...


@runtime_checkable
class CheckableBackend(Protocol):
    """A sandbox backend that can check, before a run starts, that it can open its sandboxes."""

    async def check(self, spec: SandboxSpec) -> None:
        """Look up the image of a sandbox, and get it if it is missing; or ask the remote service
        whether it lets this client in. No sandbox is opened.

        Raises:
            SandboxError: no such sandbox could be opened; the message says why and what to do.
        """
        ...
