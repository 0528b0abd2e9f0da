"""The kit for sandboxes names the call that hangs, within its time limit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from ale.testing.fakes import FolderBackend, FolderSandbox, FolderSession
from ale.testing.sandbox import SandboxContract
from ale.types import ExecResult, SandboxSpec

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.usefixtures("swept", "short_timeout"),
]

KIT = SandboxContract()


class Hangs(FolderSandbox):
    """One method never returns, after it has done its work."""

    method = ""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name != type(self).method:
            return found

        async def hang(*args: Any, **options: Any) -> None:
            await found(*args, **options)
            await asyncio.Event().wait()

        return hang


class NeverReturnsFromExec(Hangs):
    method = "exec"


class NeverReturnsFromClose(Hangs):
    method = "close"


class NeverReturnsFromRead(Hangs):
    method = "read"


class NeverOpensASession(Hangs):
    method = "session"


class SilentSession(FolderSession):
    async def run(self, command: str, **options: Any) -> ExecResult:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class OpensSilentSessions(FolderSandbox):
    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> FolderSession:
        return SilentSession(await self._start(["bash", "--norc"], env, cwd))


class IgnoresCancellation(FolderSandbox):
    """Its commands ignore their cancellation."""

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        running = asyncio.ensure_future(super().exec(command, **options))
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        return await running


HANGING = [
    (NeverReturnsFromExec, "test_a_silent_command_is_silent", "`exec` did not return within 2 s$"),
    (
        NeverReturnsFromExec,
        "test_output_before_a_timeout_is_returned",
        "`exec` did not return within 2 s after its time limit of 2 s$",
    ),
    (NeverReturnsFromRead, "test_max_bytes_gives_the_beginning", "`read` did not return within"),
    (NeverOpensASession, "test_the_last_status_is_kept", "`session` did not return within"),
    (OpensSilentSessions, "test_the_last_status_is_kept", "`run` did not return within 2 s"),
    (
        IgnoresCancellation,
        "test_cancelling_kills_the_tree",
        "`exec` did not return within 2 s after it was cancelled$",
    ),
]


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        pytest.param(kind, name, sentence, id=f"{kind.__name__}-{name}")
        for kind, name, sentence in HANGING
    ],
)
async def test_a_call_that_hangs_is_named_within_the_time_limit(
    kind: type[FolderSandbox], name: str, sentence: str
) -> None:
    box = kind()
    async with asyncio.timeout(10):
        with pytest.raises(AssertionError, match=sentence):
            await getattr(KIT, name)(box)


class NeverCloses(FolderBackend):
    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        sandbox = NeverReturnsFromClose()
        try:
            yield sandbox
        finally:
            await sandbox.close()


class NeverOpens(FolderBackend):
    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        await asyncio.Event().wait()
        yield FolderSandbox()


async def test_a_backend_whose_sandboxes_never_close_is_named_within_the_time_limit() -> None:
    async with asyncio.timeout(10):
        with pytest.raises(AssertionError, match=r"`close` did not return within 2 s$"):
            await KIT.test_prune_spares_what_is_in_use(NeverCloses())


async def test_a_backend_that_never_opens_is_named_within_the_time_limit() -> None:
    async with asyncio.timeout(10):
        with pytest.raises(AssertionError, match=r"`open` did not return within 2 s$"):
            await KIT.test_however_it_is_left_it_is_removed(NeverOpens(), "error")
