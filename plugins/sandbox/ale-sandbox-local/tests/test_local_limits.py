"""Every limit is seen from inside and bites; what a limit can't do is declared."""

import os
from collections.abc import Callable

import pytest

from ale.errors import SandboxError
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_local.limits import Dialect, Facts, tasks_now

Make = Callable[..., SandboxBackend]
SMALL = {"cpu_s": 7, "memory_mb": 512, "processes": 100, "file_size_mb": 3, "open_files": 64}


def test_the_tasks_of_the_user_are_counted() -> None:
    assert tasks_now() >= len(os.listdir("/proc/self/task")) > 0  # noqa: PTH208


def values(text: bytes) -> dict[str, tuple[str, str]]:
    """Soft and hard limit by name, of the text of /proc/self/limits."""
    rows = text.decode().splitlines()[1:]
    return {row[:26].strip(): (row[26:47].strip(), row[47:68].strip()) for row in rows}


async def test_limits_are_seen_from_inside_exec_and_session_alike(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What else the user has running changes while this runs.
    monkeypatch.setattr("ale_sandbox_local.backend.tasks_now", lambda: 2000)
    backend = make(**SMALL)
    async with backend.open(SandboxSpec()) as sandbox:
        session = await sandbox.session()
        for result in (
            await sandbox.exec("cat /proc/self/limits"),
            await sandbox.exec(["cat", "/proc/self/limits"]),
            await session.run("cat /proc/self/limits"),
        ):
            seen = values(result.stdout)
            assert seen["Max cpu time"] == ("7", "9")
            assert seen["Max data size"] == (str(512 << 20), str(512 << 20))
            assert seen["Max file size"] == (str(3 << 20), str(3 << 20))
            assert seen["Max open files"] == ("64", "64")
            assert seen["Max core file size"] == ("0", "0")
            assert seen["Max processes"][0] == "2100"


async def test_a_limit_of_none_leaves_the_hosts(make: Make) -> None:
    backend = make(cpu_s=None, memory_mb=None, processes=None, file_size_mb=None, open_files=None)
    with open("/proc/self/limits", "rb") as file:  # noqa: ASYNC230, PTH123
        host = values(file.read())
    async with backend.open(SandboxSpec()) as sandbox:
        seen = values((await sandbox.exec("cat /proc/self/limits")).stdout)
    for name in ("Max cpu time", "Max data size", "Max file size", "Max processes"):
        assert seen[name] == host[name]


async def test_the_tasks_memory_goes_before_the_option(make: Make) -> None:
    async with make(memory_mb=8192).open(SandboxSpec(memory_mb=100)) as sandbox:
        seen = values((await sandbox.exec("cat /proc/self/limits")).stdout)
    assert seen["Max data size"][1] == str(100 << 20)


async def test_cpu_time_ends_with_its_signal(make: Make) -> None:
    async with make(cpu_s=1).open(SandboxSpec()) as sandbox:
        result = await sandbox.exec("while :; do :; done")
    assert result.exit_code == 128 + 24  # SIGXCPU
    assert result.duration_s < 20


async def test_a_file_stops_at_its_size(make: Make) -> None:
    async with make(file_size_mb=1).open(SandboxSpec()) as sandbox:
        result = await sandbox.exec(["dd", "if=/dev/zero", "of=big", "bs=65536", "count=64"])
        assert result.exit_code == 128 + 25  # SIGXFSZ
        assert len(await sandbox.read("big")) == 1 << 20


async def test_open_files_end_with_an_error(make: Make) -> None:
    async with make(open_files=32).open(SandboxSpec()) as sandbox:
        result = await sandbox.exec(["sh", "-c", "exec 40</dev/null"])
        assert result.exit_code != 0
        assert (await sandbox.exec(["sh", "-c", "exec 9</dev/null"])).exit_code == 0


async def test_a_program_may_reserve_what_it_does_not_use(make: Make) -> None:
    """The address space is free: Go, Java and JavaScript engines reserve far more than they use."""
    program = (
        "import mmap; mmap.mmap(-1, 20 << 30, prot=0, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
    )
    async with make(memory_mb=256).open(SandboxSpec()) as sandbox:
        result = await sandbox.exec(["python3", "-c", program])
        assert (result.exit_code, result.stderr) == (0, b"")


async def test_what_the_kernel_lets_this_user_do_is_declared(make: Make) -> None:
    backend = make(file_size_mb=1)
    declared, notes = backend.capabilities.limits, backend.capabilities.notes
    async with backend.open(SandboxSpec()) as sandbox:
        raised = (await sandbox.exec("ulimit -f unlimited")).exit_code == 0
        flag = "-p" if (await sandbox.exec("ulimit -u")).exit_code else "-u"
        counted = (await sandbox.exec(f"ulimit {flag} 1; sleep 0 & wait $!")).exit_code != 0
    assert declared["file_size"] == ("best-effort" if raised else "enforced")
    assert declared["processes"] == ("best-effort" if counted else "none")
    assert any("raise every limit" in note for note in notes) is raised
    assert any("does not count" in note for note in notes) is not counted


async def test_a_fork_bomb_is_gone_when_the_sandbox_is_closed(make: Make) -> None:
    """A chain of shells that each start the next, up to a number that the host can bear."""
    async with make(processes=400).open(SandboxSpec()) as sandbox:
        await sandbox.write("bomb", b'[ "$1" -ge 150 ] || sh bomb $(($1 + 1)) &\nsleep 600\n')
        await sandbox.exec("sh bomb 1 >/dev/null 2>&1 &")
        lines = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
        count, alive = f"{lines} | grep -c '^[b]omb$'", 0
        while alive < 50:
            alive = int((await sandbox.exec(count)).stdout)
        assert await sandbox.end_processes() >= 50
        assert int((await sandbox.exec(count)).stdout) == 0


async def test_the_number_of_processes_is_held(make: Make) -> None:
    backend = make(processes=8)
    if backend.capabilities.limits["processes"] == "none":
        pytest.skip("declared not to be held: the kernel does not count this user's processes")
    async with backend.open(SandboxSpec()) as sandbox:
        result = await sandbox.exec("for i in $(seq 200); do sleep 5 & done", timeout_s=60)
    assert b"fork" in result.stderr.lower()


async def test_a_limit_that_cannot_be_set_is_an_error(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts(
        dialect=Dialect(processes="-Q", block=512), raises_limits=False, counts_processes=True
    )
    monkeypatch.setattr("ale_sandbox_local.backend.facts_of", lambda _: facts)
    with pytest.raises(SandboxError, match="can't set the limits"):
        async with make().open(SandboxSpec()):
            pass


async def test_ordinary_work_fits_the_defaults(box: Sandbox) -> None:
    result = await box.exec(
        ["python3", "-c", "import threading, json; print(sum(bytearray(200 << 20)))"]
    )
    assert (result.stdout, result.exit_code) == (b"0\n", 0)
