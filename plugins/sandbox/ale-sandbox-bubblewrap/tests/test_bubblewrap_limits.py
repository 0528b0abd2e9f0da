"""Every limit bites, is reported as what it was, and leaves sandbox and host alive."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.errors import SandboxDamagedError
from ale.protocols import Sandbox, SandboxBackend
from ale.testing.waiting import until
from ale.types import ExecResult, SandboxSpec
from ale_sandbox_bubblewrap import facts
from ale_sandbox_bubblewrap.cgroups import Cgroups, Group, Wanted

Build = Callable[..., SandboxBackend]
MIB = 1 << 20
EAT = "import time; data = bytearray({mib} << 20); print('ate', flush=True); time.sleep(60)"
DESCRIPTORS = """
import os
count = 0
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
        count += 1
except OSError as error:
    print(count, error.errno)
"""
SPIN = """
import time
begun = time.monotonic()
while time.monotonic() - begun < 2:
    pass
print(time.process_time() / (time.monotonic() - begun))
"""


SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(100):
    address = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)
    ctypes.memset(address, 1, 8 << 20)
    libc.shmdt(ctypes.c_void_p(address))
"""
SOCKETS = """
import socket
pairs = []
while True:
    one, other = socket.socketpair()
    one.setblocking(False)
    pairs.append((one, other))
    try:
        while True:
            one.send(bytes(65536))
    except BlockingIOError:
        pass
"""


HIDDEN = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_RSS, (0, 0))
if len(sys.argv) < 3:
    os.execve(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[1], "again"], {})
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        pass
"""
"""Without the tag of its command, and with a fork for each place that is free."""


def needs(backend: SandboxBackend, limit: str) -> None:
    if backend.capabilities.limits[limit] != "enforced":
        pytest.skip(f"declared {backend.capabilities.limits[limit]} on this machine")


async def test_a_command_that_takes_too_much_memory_is_killed(shared: Build) -> None:
    async with shared().open(SandboxSpec(memory_mb=128)) as box:
        session = await box.session()
        result = await box.exec(["python3", "-c", EAT.format(mib=400)], timeout_s=30)
        assert result.exit_code != 0
        assert not result.timed_out
        assert b"ate" not in result.stdout
        assert (await session.run("echo alive")).stdout == b"alive\n"


async def test_processes_together_do_not_take_more_memory_than_allowed(shared: Build) -> None:
    """Each would fit by itself."""
    backend = shared()
    needs(backend, "memory")
    async with backend.open(SandboxSpec(memory_mb=256)) as box:
        results: list[ExecResult | None] = []

        async def one() -> None:
            results.append(await box.exec(["python3", "-c", EAT.format(mib=100)], timeout_s=60))

        running = [asyncio.ensure_future(one()) for _ in range(4)]
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        assert results[0] is not None
        assert results[0].exit_code == 137
        await box.end_processes()
        await asyncio.gather(*running)
        assert (await box.exec("echo alive")).stdout == b"alive\n"


async def filled(box: Sandbox, filling: str) -> None:
    """Fill the memory until the sandbox ends."""
    for _ in range(5):
        session = await box.session()
        await session.run(f"python3 -c '{filling}'", timeout_s=30)


async def test_memory_that_is_charged_to_no_process_ends_a_sandbox_that_its_agent_damaged(
    shared: Build,
) -> None:
    """The kernel kills all it finds, and frees nothing by it: the agent did that, not the host."""
    backend = shared(memory_mb=128)
    needs(backend, "memory")
    async with backend.open(SandboxSpec()) as box:
        with pytest.raises(SandboxDamagedError, match="out of memory"):
            await filled(box, SOCKETS)
        with pytest.raises(SandboxDamagedError, match="out of memory"):
            await box.exec("true")
        with pytest.raises(SandboxDamagedError, match="out of memory"):
            await box.read("file")
    async with backend.open(SandboxSpec()) as box:
        assert (await box.exec("true")).exit_code == 0


async def test_shared_memory_that_a_killed_command_has_filled_is_free_again(
    shared: Build, found: facts.Facts
) -> None:
    backend = shared(memory_mb=128)
    needs(backend, "memory")
    if found.bounds is not None:
        pytest.skip("this kernel lets no sandbox have limits of its own on it")
    async with backend.open(SandboxSpec()) as box:
        await filled(box, SEGMENTS)
        result = await box.exec("tail -n +2 /proc/sysvipc/shm; echo alive")
        assert (result.exit_code, result.stdout) == (0, b"alive\n")


async def test_a_fork_bomb_is_limited_and_killed(shared: Build) -> None:
    backend = shared(processes=64)
    needs(backend, "processes")
    async with backend.open(SandboxSpec()) as box, backend.open(SandboxSpec()) as other:
        result = await box.exec(["bash", "-c", "b() { b | b & }; b; sleep 600"], timeout_s=2)
        assert result.timed_out
        assert (await other.exec("for i in 1 2 3 4 5; do (true); done; echo free")).exit_code == 0
        await box.exec(["bash", "-c", "b() { b | b & }; b; sleep 600"], timeout_s=1)
        await box.end_processes()
        result = await box.exec("echo alive")
        assert (result.stdout, result.stderr) == (b"alive\n", b"")
        assert await box.end_processes() == 0


async def test_processes_that_hide_and_leave_no_place_end_with_the_sandbox(shared: Build) -> None:
    """Nothing could end them one by one: they fill the place of whatever would."""
    backend = shared(processes=40)
    needs(backend, "processes")
    async with backend.open(SandboxSpec()) as box:
        result = await asyncio.wait_for(
            box.exec(["python3", "-c", HIDDEN, HIDDEN], timeout_s=2), 30
        )
        assert result.timed_out
        await asyncio.sleep(1)  # until they have taken the place of the one that was killed
        with pytest.raises(SandboxDamagedError, match="leave no place"):
            await asyncio.wait_for(box.end_processes(), 60)
        with pytest.raises(SandboxDamagedError, match="leave no place"):
            await box.exec("true")
    async with backend.open(SandboxSpec()) as box:
        assert (await box.exec("true")).exit_code == 0


async def test_a_sandbox_whose_folders_are_forbidden_to_itself_was_damaged(shared: Build) -> None:
    async with shared().open(SandboxSpec()) as box:
        assert (await box.exec("chmod 000 / 2>/dev/null || chmod 000 /usr")).exit_code == 0
        with pytest.raises(SandboxDamagedError, match="could not open a session"):
            await (await box.session()).run("true")


async def test_processes_that_have_ended_do_not_count_for_the_limit(shared: Build) -> None:
    """Their parents end first: the first process must have the kernel reap them."""
    async with shared(processes=64).open(SandboxSpec()) as box:
        result = await box.exec("i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done")
        assert (result.exit_code, result.stderr) == (0, b"")
        result = await box.exec("cat /proc/[0-9]*/stat | grep -c ') Z '")
        assert result.stdout == b"0\n"


async def test_exceeding_the_process_limit_is_reported(shared: Build) -> None:
    backend = shared(processes=64)
    needs(backend, "processes")
    async with backend.open(SandboxSpec()) as box:
        result = await box.exec("i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done")
        assert result.exit_code != 0
        assert b"fork" in result.stderr.lower()
        # 64 less the shell that has started them.
        assert 40 <= await box.end_processes() <= 64


async def test_descriptors_run_out_for_the_command_alone(shared: Build) -> None:
    async with shared(open_files=64).open(SandboxSpec()) as box:
        result = await box.exec(["python3", "-c", DESCRIPTORS])
        count, errno = map(int, result.stdout.split())
        assert errno == 24  # EMFILE
        assert 40 < count < 64
        session = await box.session()
        assert (await session.run("ulimit -n")).stdout == b"64\n"
        assert await box.read("/etc/hostname") == b"sandbox\n"


async def test_a_file_stops_at_its_size_with_its_signal(shared: Build) -> None:
    async with shared(file_size_mb=1).open(SandboxSpec()) as box:
        result = await box.exec(["dd", "if=/dev/zero", "of=big", "bs=65536", "count=64"])
        assert result.exit_code == 128 + 25  # SIGXFSZ
        assert len(await box.read("big")) == MIB


async def test_a_limited_disk_is_full_when_it_is_full(shared: Build) -> None:
    backend = shared(disk_mb=64)
    needs(backend, "disk")
    async with backend.open(SandboxSpec()) as box, backend.open(SandboxSpec()) as other:
        fill = "for i in 1 2 3 4 5 6 7 8 9; do dd if=/dev/zero of=$1/f$i bs=1M count=10; done"
        for folder in (".", "/tmp", "/usr/local"):
            result = await box.exec(["sh", "-c", fill, "sh", folder])
            assert b"No space left" in result.stderr
        total = await box.exec("cat f* /tmp/f* /usr/local/f* | wc -c")
        assert int(total.stdout) <= 64 * MIB
        await other.exec("dd if=/dev/zero of=mine bs=1M count=10")
        assert len(await other.read("mine")) == 10 * MIB
        await box.exec("rm f*; echo again > file")
        assert await box.read("file") == b"again\n"


async def test_shared_memory_is_limited(shared: Build) -> None:
    async with shared().open(SandboxSpec()) as box:
        result = await box.exec("dd if=/dev/zero of=/dev/shm/f bs=1M count=100")
        assert b"No space left" in result.stderr
        twin = await box.fork()  # its root is another one
        assert b"No space left" in (await twin.exec("cp /dev/zero /dev/shm/f")).stderr
        await twin.close()


FILES = """
import os, sys
n = 0
try:
    while n < 40000:
        os.close(os.open(f"{sys.argv[1]}/{n}", os.O_CREAT))
        n += 1
except OSError as error:
    print(error.errno)
print(n)
"""


async def test_files_in_memory_are_limited_in_number(shared: Build) -> None:
    """An empty one costs a kilobyte that is charged to no process, and stays."""
    backend = shared(disk_mb=64)
    needs(backend, "disk")
    async with backend.open(SandboxSpec()) as box:
        for folder in ("/workspace", "/dev/shm"):
            result = await box.exec(["python3", "-c", FILES, folder], timeout_s=60)
            errno, count = map(int, result.stdout.split())
            assert (errno, count <= 16384) == (28, True), result  # ENOSPC


WATCHERS = """
import ctypes
libc = ctypes.CDLL(None)
n = 0
while n < 1000 and libc.inotify_init() >= 0:
    n += 1
print(n)
"""


async def test_one_sandbox_does_not_use_up_the_inotify_instances_of_all(
    shared: Build, found: facts.Facts
) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    if found.bounds is not None or most > 1000:
        pytest.skip("this kernel has other limits")
    backend = shared()
    async with backend.open(SandboxSpec()) as one, backend.open(SandboxSpec()) as two:
        holding = asyncio.ensure_future(
            one.exec(["python3", "-c", WATCHERS + "import time; open('n', 'w'); time.sleep(60)"])
        )
        await until(lambda: _there(one, "n"), "the instances of one")
        result = await two.exec(["python3", "-c", WATCHERS])
        assert int(result.stdout) == most // 4
        holding.cancel()


async def _there(box: Sandbox, name: str) -> bool:
    return (await box.exec(["test", "-e", name])).exit_code == 0


async def test_cpu_time_ends_with_its_signal(shared: Build) -> None:
    async with shared(cpu_s=1).open(SandboxSpec()) as box:
        result = await box.exec("while :; do :; done", timeout_s=60)
        assert result.exit_code == 128 + 24  # SIGXCPU


async def test_a_share_of_the_processors_is_not_exceeded(shared: Build) -> None:
    backend = shared()
    needs(backend, "cpu")
    async with backend.open(SandboxSpec(cpus=0.25)) as box:
        share = float((await box.exec(["python3", "-c", SPIN])).stdout)
    assert share < 0.4


async def test_limits_of_the_host_stay_in_force_where_none_is_set(shared: Build) -> None:
    options = dict.fromkeys(("cpu_s", "memory_mb", "processes", "file_size_mb", "open_files"))
    async with shared(**options).open(SandboxSpec()) as box:
        seen = (await box.exec("cat /proc/self/limits")).stdout.decode()
    host = Path("/proc/self/limits").read_text()
    for name in ("Max cpu time", "Max file size", "Max processes", "Max data size"):
        of = [[row for row in text.splitlines() if row.startswith(name)] for text in (seen, host)]
        assert of[0] == of[1]


def test_a_group_is_given_its_limits_and_removed(found: facts.Facts) -> None:
    if not found.cgroups.places:
        pytest.skip("this user may not make control groups here")
    wanted = Wanted(memory_bytes=64 * MIB, processes=None, cpus=None)
    paths = found.cgroups.paths("ale-test-group", wanted)
    group = found.cgroups.make(paths, wanted)
    (path,) = map(Path, paths)
    file = "memory.max" if found.cgroups.version == 2 else "memory.limit_in_bytes"
    assert int((path / file).read_text()) == 64 * MIB
    asyncio.run(group.remove())
    asyncio.run(Group(paths).remove())
    assert not path.exists()


def test_what_is_written_for_each_version(tmp_path: Path) -> None:
    wanted = Wanted(memory_bytes=64 * MIB, processes=5, cpus=0.5)
    places = dict.fromkeys(("memory", "pids", "cpu"), tmp_path)
    expected = {
        1: {"memory.limit_in_bytes": "67108864", "pids.max": "5", "cpu.cfs_quota_us": "50000"},
        2: {"memory.max": "67108864", "pids.max": "5", "cpu.max": "50000 100000"},
    }
    for version, files in expected.items():
        groups = Cgroups(places, version)
        groups.make(groups.paths(f"v{version}", wanted), wanted)
        for name, text in files.items():
            assert (tmp_path / f"v{version}" / name).read_text() == text
