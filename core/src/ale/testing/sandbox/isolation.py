"""Probes of isolation: what is declared isolated is isolated; everything else is reachable."""

import asyncio
import contextlib
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ale.errors import SandboxDamagedError
from ale.protocols import Sandbox, SandboxBackend
from ale.testing.sandbox._guard import time_limited
from ale.testing.sandbox.probes import MIB, expect
from ale.types import SandboxSpec

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy")
CHAIN = b"""echo x >> count
[ "$1" -ge 150 ] && exit 0
sh chain $(($1 + 1))
exit
"""
# Of every process in sight, the one that runs commands among them.
NO_FILES = """
if command -v prlimit; then
  for each in /proc/[0-9]*; do prlimit --pid "${each#/proc/}" --nofile=0; done
elif command -v python3; then
  python3 -c 'import os, resource
for each in filter(str.isdigit, os.listdir("/proc")):
    try: resource.prlimit(int(each), resource.RLIMIT_NOFILE, (0, 0))
    except OSError: pass'
fi >/dev/null 2>&1
exit 0
"""
PROCESSES = 64
RESERVED = 12
"""Processes that a backend may use for itself, of those of a limit or beside them."""
LIMITS = {"cpu", "memory", "processes", "file_size", "disk"}


def any_client(host: str, port: int) -> str:
    """A command that connects with whatever client exists; exits with 99 if there is none."""
    return (
        "if command -v python3 >/dev/null; then"
        f" python3 -c 'import socket; socket.create_connection((\"{host}\", {port}), 3)';"
        f" elif command -v bash >/dev/null; then bash -c ': </dev/tcp/{host}/{port}';"
        f" elif command -v nc >/dev/null; then nc -w 3 {host} {port} </dev/null;"
        f" elif command -v wget >/dev/null; then wget -T 3 -q -O - http://{host}:{port}/;"
        " else exit 99; fi"
    )


@contextlib.contextmanager
def program(*argv: str) -> Iterator[None]:
    """Run a process on the host, whose arguments can be read there."""
    process = subprocess.Popen(argv)
    try:
        # `Popen` returns a moment before the kernel has the new program's arguments in place.
        words = Path(f"/proc/{process.pid}/cmdline")
        while words.exists() and argv[-1].encode() not in words.read_bytes():
            assert process.poll() is None, f"{argv} has ended"
            time.sleep(0.001)
        yield
    finally:
        process.kill()
        process.wait()


@time_limited
@pytest.mark.asyncio
class IsolationProbes:
    hurt: ClassVar[type[Exception]] = SandboxDamagedError
    """Raised of a sandbox whose helper inside it was hurt. A remote service may be unable to tell
    that from an outage of its own: then `SandboxError`."""

    @pytest.fixture
    def client(self) -> Callable[[str, int], str]:
        """A command that connects to a host and port, and exits with 99 if it has no client."""
        return any_client

    @pytest.fixture
    def small_limits(self, backend: SandboxBackend) -> SandboxBackend:
        """Override: the backend with limits that the probes can reach.

        256 MiB of memory, 64 processes, files of 8 MiB, 2 seconds of cpu time, 200 MiB of disk, as
        far as the backend has such options and claims to enforce them.
        """
        limited = {name for name, level in backend.capabilities.limits.items() if level != "none"}
        if limited:
            pytest.fail(f"override the fixture small_limits: {sorted(limited)} are claimed")
        return backend

    async def test_the_declaration_is_complete(self, backend: SandboxBackend) -> None:
        declared = backend.capabilities
        assert set(declared.limits) == LIMITS, f"`limits` must name {sorted(LIMITS)}"
        whole = (
            declared.network_isolation
            and declared.filesystem_isolation
            and declared.process_isolation
        )
        assert whole or declared.notes, "`notes` must state what is not isolated"

    async def test_nothing_of_the_hosts_environment_is_seen(
        self, backend: SandboxBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        word = secrets.token_hex(8)
        for name in ("KIT_API_KEY", *PROXIES, *(name.upper() for name in PROXIES)):
            monkeypatch.setenv(name, f"http://{word}")
        async with backend.open(SandboxSpec()) as sandbox:
            session = await sandbox.session()
            for result in (await sandbox.exec("env; set"), await session.run("env; set")):
                expect(result, exit_code=0)
                assert word.encode() not in result.stdout
                assert b"KIT_API_KEY" not in result.stdout
                names = {line.split(b"=")[0].lower() for line in result.stdout.splitlines()}
                assert not names & {name.encode() for name in PROXIES}

    async def test_ordinary_variables_are_there(self, box: Sandbox) -> None:
        result = await box.exec('test -d "$HOME" && test -n "$PATH" && touch "$HOME/x" && echo ok')
        expect(result, stdout=b"ok\n")
        temporary = await box.exec('touch "${TMPDIR:-/tmp}/x" && echo ok')
        expect(temporary, stdout=b"ok\n")

    async def test_files_of_the_host_are_seen_just_as_declared(
        self, backend: SandboxBackend, box: Sandbox, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("of the host")
        result = await box.exec(["cat", str(tmp_path / "file")])
        seen = result.stdout == b"of the host"
        declared = backend.capabilities.filesystem_isolation
        assert seen is not declared, f"a host file is readable: {seen}, isolation: {declared}"

    async def test_processes_of_the_host_are_seen_just_as_declared(
        self, backend: SandboxBackend, box: Sandbox
    ) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        with program("sleep", word):
            # The pattern must not find the command that looks for it.
            pattern = f"{word[:-1]}[{word[-1]}]"
            looker = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '{pattern}'"
            result = await box.exec(looker)
        seen = result.stdout.strip() not in (b"", b"0")
        declared = backend.capabilities.process_isolation
        assert seen is not declared, f"a host process is visible: {seen}, isolation: {declared}"

    async def test_a_listener_of_the_host_is_reached_just_as_declared(
        self, backend: SandboxBackend, client: Callable[[str, int], str]
    ) -> None:
        reached = asyncio.Event()

        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.set()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        try:
            port = server.sockets[0].getsockname()[1]
            async with backend.open(SandboxSpec(network=False)) as sandbox:
                result = await sandbox.exec(client("127.0.0.1", port))
                await asyncio.sleep(0.1)
        finally:
            server.close()
            await server.wait_closed()
        assert result.exit_code != 99, "override the fixture client: this sandbox has none of them"
        declared, open_ = backend.capabilities.network_isolation, reached.is_set()
        assert open_ is not declared, f"the host was reached: {open_}, isolation: {declared}"

    async def test_without_a_network_the_metadata_address_is_not_reached(
        self, backend: SandboxBackend, client: Callable[[str, int], str]
    ) -> None:
        if not backend.capabilities.network_isolation:
            return  # the probe above has shown that the network is open
        async with backend.open(SandboxSpec(network=False)) as sandbox:
            result = await sandbox.exec(client("169.254.169.254", 80))
        assert result.exit_code not in (0, 99), "the metadata address was reached"

    async def test_a_file_that_grows_without_end_is_stopped_just_as_declared(
        self, small_limits: SandboxBackend
    ) -> None:
        limited = small_limits.capabilities.limits["file_size"] != "none"
        async with small_limits.open(SandboxSpec()) as sandbox:
            result = await sandbox.exec("dd if=/dev/zero of=big bs=65536 count=256")
            grown = len(await sandbox.read("big"))
        assert (grown <= 8 * MIB) is limited, (
            f"a file grew to {grown} bytes; limit declared: {limited}"
        )
        assert (result.exit_code != 0) is limited, f"exit code {result.exit_code}; limit: {limited}"

    async def test_memory_without_end_is_stopped_just_as_declared(
        self, backend: SandboxBackend, small_limits: SandboxBackend
    ) -> None:
        limited = small_limits.capabilities.limits["memory"] != "none"
        # On a busy machine a small limit on cpu time could be reached before the pages are written.
        opened = small_limits if limited else backend
        async with opened.open(SandboxSpec(memory_mb=256)) as sandbox:
            # One buffer of 600 MiB, and every page of it written.
            result = await sandbox.exec("dd if=/dev/zero of=/dev/null bs=629145600 count=1")
            code = result.exit_code
            assert (code != 0) is limited, (
                f"600 MiB gave exit code {code}; limit declared: {limited}"
            )
            expect(await sandbox.exec("echo alive"), stdout=b"alive\n")

    async def test_processes_without_end_are_stopped_just_as_declared(
        self, small_limits: SandboxBackend
    ) -> None:
        limited = small_limits.capabilities.limits["processes"] != "none"
        async with small_limits.open(SandboxSpec()) as sandbox:
            # Each link of the chain starts the next: the limit stops it, or it stops at 150.
            await sandbox.write("chain", CHAIN)
            await sandbox.exec("sh chain 1", timeout_s=60)
            count = len(await sandbox.read("count")) // 2
            await sandbox.end_processes()
            low, high = (PROCESSES - RESERVED, PROCESSES + RESERVED) if limited else (150, 150)
            assert low <= count <= high, f"{count} ran, not {low} to {high}"
            expect(await sandbox.exec("echo alive"), stdout=b"alive\n")

    async def test_limits_that_its_processes_are_given_hurt_a_sandbox_alone(
        self, backend: SandboxBackend
    ) -> None:
        """It can be used as before, or was damaged: nothing waits, and nothing else is broken."""
        async with backend.open(SandboxSpec()) as sandbox:
            await sandbox.exec("ulimit -n 0; ls; exit 0", timeout_s=30)
            expect(await sandbox.exec("echo alive"), stdout=b"alive\n")
            # Without isolation, process 1 is that of the host.
            if backend.capabilities.process_isolation:
                with contextlib.suppress(self.hurt):
                    await sandbox.exec(NO_FILES, timeout_s=30)
                    await sandbox.end_processes()
                    expect(await sandbox.exec("echo alive"), stdout=b"alive\n")
        async with backend.open(SandboxSpec()) as fresh:
            expect(await fresh.exec("echo alive"), stdout=b"alive\n")

    async def test_files_without_end_are_stopped_as_a_limit_of_disk_says(
        self, small_limits: SandboxBackend
    ) -> None:
        """An empty file takes memory of the kernel, which is charged to no process."""
        if small_limits.capabilities.limits["disk"] == "none":
            return
        async with small_limits.open(SandboxSpec()) as sandbox:
            result = await sandbox.exec("seq 300000 | xargs touch", timeout_s=120)
            assert result.exit_code != 0, "300000 empty files are in a disk of 200 MiB"
            await sandbox.exec("ls | xargs rm -f", timeout_s=60)
            expect(await sandbox.exec("echo alive"), stdout=b"alive\n")

    async def test_shared_memory_ends_with_the_processes_that_use_it(
        self, backend: SandboxBackend, box: Sandbox
    ) -> None:
        """Else the next command pays for it, and is killed for memory that is not its own."""
        if any(note.startswith("shared memory:") for note in backend.capabilities.notes):
            return  # it is said that it stays
        if (await box.exec("command -v ipcmk && test -r /proc/sysvipc/shm")).exit_code != 0:
            return  # an image with util-linux shows it
        await box.exec("ipcmk -M 8388608")
        await box.end_processes()
        expect(await box.exec("tail -n +2 /proc/sysvipc/shm"), stdout=b"")

    async def test_cpu_time_without_end_is_stopped_just_as_declared(
        self, small_limits: SandboxBackend
    ) -> None:
        level = small_limits.capabilities.limits["cpu"]
        if level == "none":
            return  # a loop that no limit stops proves nothing
        async with small_limits.open(SandboxSpec(cpus=1.0)) as sandbox:
            result = await sandbox.exec("while :; do :; done", timeout_s=30)
        # A quota on processors only slows the loop down: then the timeout ends it.
        assert result.exit_code != 0, "an endless loop has exit code 0"
        self.check_cpu(result)

    def check_cpu(self, result: Any) -> None:
        """Override if cpu is a quota, not a number of seconds."""
        assert not result.timed_out, "the loop was not stopped by its limit"
