"""The kit for sandboxes fails wrong ones, each for its own reason."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.errors import SandboxError
from ale.protocols import Sandbox, SandboxBackend
from ale.testing.fakes import FolderBackend, FolderSandbox, FolderSession
from ale.testing.sandbox import SandboxContract, probes
from ale.testing.sandbox.isolation import any_client
from ale.types import Capabilities, ExecResult, SandboxInfo, SandboxSpec

# A probe that fails leaves open what it has opened in its wrong sandbox.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.usefixtures("swept", "short_timeout"),
]

KIT = SandboxContract()
WRONG = (AssertionError, pytest.fail.Exception, SandboxError, TimeoutError)


class Folder(FolderSandbox):
    """A `FolderSandbox` whose results can be spoilt."""

    def spoil(self, result: ExecResult) -> ExecResult:
        return result

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        return self.spoil(await super().exec(command, **options))


class LosesTheCode(Folder):
    def spoil(self, result: ExecResult) -> ExecResult:
        return evolve(result, exit_code=0)


class CountsSignalsFromZero(Folder):
    def spoil(self, result: ExecResult) -> ExecResult:
        code = result.exit_code
        return evolve(result, exit_code=code - 256 if code > 128 else code)


class MergesTheOutputs(Folder):
    def spoil(self, result: ExecResult) -> ExecResult:
        return evolve(result, stdout=result.stdout + result.stderr, stderr=b"")


class ReturnsTextOnly(Folder):
    def spoil(self, result: ExecResult) -> ExecResult:
        return evolve(result, stdout=result.stdout.decode(errors="replace").encode())


class DropsTheTail(Folder):
    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        limit = options.pop("max_output_bytes", 1 << 20)
        result = await super().exec(command, **options)
        cut = len(result.stdout) > limit
        return evolve(result, stdout=result.stdout[:limit], truncated=cut)


class CutsWithoutReporting(Folder):
    def spoil(self, result: ExecResult) -> ExecResult:
        return evolve(result, truncated=False)


class DoesNotReportTheTimeout(Folder):
    def spoil(self, result: ExecResult) -> ExecResult:
        return evolve(result, timed_out=False)


class RunsOneAtATime(Folder):
    def __init__(self) -> None:
        super().__init__()
        self._one = asyncio.Lock()

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        async with self._one:
            return await super().exec(command, **options)


class LeavesTheCancelledRunning(Folder):
    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        return await asyncio.shield(super().exec(command, **options))


class AddsANewline(Folder):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await super().write(path, data + b"\n", mode=mode)


class ForgetsTheMode(Folder):
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await super().write(path, data)


class LeaksTheEnvironment(Folder):
    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        env: Mapping[str, str] = {**os.environ, **(options.pop("env", None) or {})}
        return await super().exec(command, env=env, **options)


class WaitsForNoOutput(Folder):
    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        return await super().exec(f"{{ {command}; }} >/dev/null 2>&1", **options)


class ForksIntoItself(Folder):
    async def fork(self) -> FolderSandbox:
        return FolderSandbox(self._folder)


MARK = b"__exit__:"


class NaiveSession(FolderSession):
    """Finds the end of a command by a line in its output, as many do."""

    async def run(self, command: str, **options: Any) -> ExecResult:
        if self.closed:
            raise SandboxError("the session is closed")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho __exit__:$?\n".encode())
        stdout = b""
        try:
            async with asyncio.timeout(options.get("timeout_s")):
                while not (line := await self._process.stdout.readline()).startswith(MARK):
                    if not line:
                        self.closed = True
                        return ExecResult(exit_code=0, stdout=stdout, stderr=b"")
                    stdout += line
        except TimeoutError:
            await self.close()
            return ExecResult(exit_code=137, stdout=stdout, stderr=b"", timed_out=True)
        return ExecResult(exit_code=int(line.removeprefix(MARK)), stdout=stdout, stderr=b"")


class OpensNaiveSessions(Folder):
    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> FolderSession:
        return NaiveSession(await self._start(["bash", "--norc"], env, cwd))


@contextlib.asynccontextmanager
async def opened(kind: type[FolderSandbox]) -> AsyncIterator[FolderSandbox]:
    sandbox = kind()
    try:
        yield sandbox
    finally:
        await sandbox.close()


async def probe(name: str, box: Sandbox) -> None:
    await getattr(KIT, name)(box)


SPOILT = [
    (LosesTheCode, "test_the_exit_code_is_the_true_one", "false"),
    (CountsSignalsFromZero, "test_the_exit_code_is_the_true_one", "kill -9 $$"),
    (LosesTheCode, "test_an_argument_vector_is_run_as_it_is"),
    (MergesTheOutputs, "test_stdout_and_stderr_are_separate"),
    (ReturnsTextOnly, "test_bytes_come_through_unchanged"),
    (DropsTheTail, "test_output_of_just_the_limit_is_whole"),
    (CutsWithoutReporting, "test_output_of_just_the_limit_is_whole"),
    (RunsOneAtATime, "test_commands_run_in_parallel"),
    (LeavesTheCancelledRunning, "test_cancelling_kills_the_tree"),
    (AddsANewline, "test_what_is_written_is_read_back", "two words"),
    (AddsANewline, "test_a_shorter_write_leaves_nothing_of_the_longer"),
    (ForgetsTheMode, "test_the_mode_is_set"),
    (OpensNaiveSessions, "test_stdout_and_stderr_are_separate_and_exact"),
    (OpensNaiveSessions, "test_a_syntax_error_is_the_commands_own_failure", "echo 'open"),
    (
        OpensNaiveSessions,
        "test_an_intrusive_command_does_not_break_the_session",
        "cat <<END\nno end of it",
    ),
    (OpensNaiveSessions, "test_output_like_the_protocols_own_is_only_output"),
    (OpensNaiveSessions, "test_a_reader_of_stdin_does_not_eat_the_next_command"),
    (OpensNaiveSessions, "test_a_command_that_ends_the_shell_closes_the_session", "exit 3"),
]


@pytest.mark.parametrize(
    ("kind", "name", "cases"),
    [pytest.param(kind, name, rest, id=f"{kind.__name__}-{name}") for kind, name, *rest in SPOILT],
)
async def test_a_wrong_sandbox_fails(
    kind: type[FolderSandbox], name: str, cases: list[str]
) -> None:
    if not issubclass(kind, OpensNaiveSessions):
        async with opened(FolderSandbox) as right:
            await probe(name, right)  # so that the failure below has one cause
    async with opened(kind) as wrong:
        with pytest.raises(WRONG) as failure:
            await probe(name, wrong)
    notes = getattr(failure.value, "__notes__", [])
    assert notes == [f"in the case {case!r}" for case in cases]


BEYOND_A_FOLDER = [
    # A folder is only a stand-in: it waits for the end of the output, keeps all of it in memory
    # and forgets what it has read when the time is up.
    "test_a_child_that_keeps_the_output_open_causes_no_delay",
    "test_a_flood_of_output_is_cut_in_the_middle_in_flat_memory",
    "test_output_before_a_timeout_is_returned",
    "test_the_last_status_is_kept",
]


@pytest.mark.parametrize("name", BEYOND_A_FOLDER)
async def test_a_mere_folder_fails(name: str) -> None:
    async with opened(FolderSandbox) as box:
        with pytest.raises(WRONG):
            await probe(name, box)


async def test_a_timeout_that_is_not_reported_fails() -> None:
    async with opened(DoesNotReportTheTimeout) as box:
        with pytest.raises(WRONG):
            await KIT.test_output_before_a_timeout_is_returned(box)


async def test_a_path_that_leads_out_fails(tmp_path: Path) -> None:
    secret = tmp_path / "host" / "secret"
    secret.parent.mkdir()
    secret.write_bytes(b"the host's own secret")
    async with opened(FolderSandbox) as box:
        with pytest.raises(AssertionError, match="reached a file of the host"):
            await KIT.test_no_path_reaches_a_file_of_the_host(box, secret)
        with pytest.raises(AssertionError):
            await KIT.test_no_write_reaches_a_file_of_the_host(box, secret)


class Backend(FolderBackend):
    """Opens sandboxes of a kind, with a declaration that may be false and its own list."""

    def __init__(self, kind: type[FolderSandbox] = Folder, **declared: Any) -> None:
        self.capabilities = evolve(FolderSandbox.capabilities, **declared)
        self._kind = kind
        self.known: list[SandboxInfo] = []
        self.closes = True
        self.made: list[FolderSandbox] = []

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        sandbox = self._kind()
        self.made.append(sandbox)
        sandbox.capabilities = self.capabilities
        try:
            yield sandbox
        finally:
            if self.closes:
                await sandbox.close()

    async def list(self) -> Sequence[SandboxInfo]:
        return self.known


LIMITS = dict.fromkeys(("cpu", "memory", "processes", "file_size", "disk"), "enforced")


async def test_a_claim_of_a_network_that_is_off_fails() -> None:
    await KIT.test_a_listener_of_the_host_is_reached_just_as_declared(Backend(), any_client)
    claims = Backend(network_isolation=True)
    with pytest.raises(AssertionError):
        await KIT.test_a_listener_of_the_host_is_reached_just_as_declared(claims, any_client)


async def test_a_claim_of_files_that_are_out_of_reach_fails(tmp_path: Path) -> None:
    async with opened(FolderSandbox) as box:
        probe = KIT.test_files_of_the_host_are_seen_just_as_declared
        await probe(Backend(), box, tmp_path)
        with pytest.raises(AssertionError):
            await probe(Backend(filesystem_isolation=True), box, tmp_path)


async def test_a_claim_of_processes_that_are_out_of_sight_fails() -> None:
    async with opened(FolderSandbox) as box:
        probe = KIT.test_processes_of_the_host_are_seen_just_as_declared
        await probe(Backend(), box)
        with pytest.raises(AssertionError):
            await probe(Backend(process_isolation=True), box)


@pytest.mark.parametrize("what", ["file_size", "memory", "processes"])
async def test_a_claim_of_a_limit_that_does_not_hold_fails(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "TIMEOUT_S", 30.0)  # these probes do work, and none hangs
    probe = {
        "file_size": KIT.test_a_file_that_grows_without_end_is_stopped_just_as_declared,
        "memory": KIT.test_memory_without_end_is_stopped_just_as_declared,
        "processes": KIT.test_processes_without_end_are_stopped_just_as_declared,
    }[what]
    honest = Backend(limits={**dict.fromkeys(LIMITS, "none")})
    usual = (honest,) if what == "memory" else ()  # it takes the one without small limits, too
    await probe(*usual, honest)
    with pytest.raises(AssertionError):
        await probe(*usual, Backend(limits=LIMITS))


async def test_a_declaration_with_gaps_fails() -> None:
    with pytest.raises(AssertionError):
        await KIT.test_the_declaration_is_complete(Backend())
    with pytest.raises(AssertionError, match="`notes` must state"):
        await KIT.test_the_declaration_is_complete(Backend(limits=LIMITS))
    await KIT.test_the_declaration_is_complete(Backend(limits=LIMITS, notes=("all is open",)))


async def test_an_environment_that_leaks_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = KIT.test_nothing_of_the_hosts_environment_is_seen
    await probe(Backend(), monkeypatch)
    with pytest.raises(AssertionError):
        await probe(Backend(LeaksTheEnvironment), monkeypatch)


async def test_a_fork_that_shares_fails_and_so_does_one_that_was_denied() -> None:
    for kind, declared in ((ForksIntoItself, "copy"), (Folder, "replay")):
        backend = Backend(kind, fork=declared)
        async with backend.open(SandboxSpec()) as box:
            with pytest.raises(WRONG):
                await KIT.test_a_fork_is_independent_or_refused(backend, box)


async def test_a_snapshot_that_was_promised_and_is_refused_fails() -> None:
    async with opened(FolderSandbox) as box:
        await KIT.test_a_snapshot_is_restored_or_refused(Backend(), box)
        with pytest.raises(SandboxError):
            await KIT.test_a_snapshot_is_restored_or_refused(Backend(snapshot=True), box)


async def test_an_image_that_is_silently_ignored_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await KIT.test_without_images_a_spec_that_names_one_is_refused(Backend())


async def test_a_backend_that_lists_nothing_fails() -> None:
    with pytest.raises(AssertionError, match="names an open sandbox 0 times"):
        await KIT.test_it_is_listed_with_its_tags_while_it_is_open(Backend())


async def test_a_backend_that_closes_nothing_fails() -> None:
    backend = Backend(WaitsForNoOutput)
    backend.closes = False
    with pytest.raises(AssertionError, match=r"`close` left \d processes running: \d+ sleep"):
        await KIT.test_no_process_outlives_its_sandbox(backend)
    for sandbox in backend.made:
        await sandbox.close()


async def test_a_sandbox_that_leaves_processes_running_fails() -> None:
    async with opened(FolderSandbox) as box:
        with pytest.raises(AssertionError):
            await KIT.test_end_processes_ends_all_and_leaves_the_sandbox(box)


async def test_limits_that_are_claimed_must_be_given_small() -> None:
    claims: SandboxBackend = Backend(limits=LIMITS)
    wrapped = SandboxContract.small_limits
    function = getattr(wrapped, "__wrapped__", None) or wrapped._get_wrapped_function()  # type: ignore[attr-defined]
    with pytest.raises(pytest.fail.Exception, match="override the fixture small_limits"):
        function(KIT, claims)


def test_the_capabilities_of_a_folder_promise_nothing() -> None:
    """The stand-in may not be mistaken for a sandbox."""
    assert FolderSandbox.capabilities == Capabilities(
        isolation="none",
        network_isolation=False,
        filesystem_isolation=False,
        process_isolation=False,
        fork="copy",
        snapshot=False,
        images=False,
    )
