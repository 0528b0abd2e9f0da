"""What a command tries from inside, and what comes of it."""

import asyncio
import os
import re
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.protocols import Sandbox, SandboxBackend
from ale.testing.sandbox.probes import host_processes
from ale.testing.waiting import until
from ale.types import ExecResult, SandboxSpec
from ale_sandboxing.process import seccomp

# Looks at a system call's refusal: prints its errno, or 0.
CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
done = libc.syscall(*[ctypes.c_long(int(word)) for word in sys.argv[1:]])
print(ctypes.get_errno() if done == -1 else 0)
"""
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97


async def python(box: Sandbox, code: str, *words: object) -> ExecResult:
    return await box.exec(["python3", "-c", code, *map(str, words)], timeout_s=30)


async def errno_of(box: Sandbox, name: str, *words: int) -> int:
    numbers = {**seccomp.REFUSED, "clone": (56, 220), "clone3": (435, 435), "socket": (41, 198)}
    numbers |= {"ioctl": (16, 29), "ptrace": (101, 117)}
    number = numbers[name][list(seccomp.ARCHITECTURES).index(os.uname().machine)]
    result = await python(box, CALL, number, *words, *[0] * (6 - len(words)))
    assert result.exit_code == 0, result.stderr
    return int(result.stdout)


async def started(word: str) -> None:
    """Wait until there is a process with `word` in its command line."""
    await until(lambda: host_processes(word) != [])


async def gone(word: str) -> None:
    """Wait until there is none any more."""
    await until(lambda: host_processes(word) == [])


async def test_the_hosts_files_are_not_there(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    for path in (
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sudoers",
        "/etc/ssh",
        "/etc/machine-id",
        "/etc/pip.conf",
        "/sys/kernel",
        "/run/docker.sock",
        "/var/lib/dpkg",
        "/work",
        str(tmp_path),
        str(Path(__file__)),
    ):
        assert (await box.exec(["ls", path])).exit_code == 2, path
    for folder in ("/root", "/home/agent", "/tmp", "/var/tmp", "/run", "/mnt", "/srv", "/boot"):
        assert (await box.exec(["ls", "-A", folder])).stdout == b"", folder
    assert (await box.exec("ls /home")).stdout == b"agent\n"


async def test_no_account_of_the_host_is_visible(box: Sandbox) -> None:
    accounts = await box.exec("cut -d: -f1 /etc/passwd")
    assert accounts.stdout == b"root\nagent\nnobody\n"
    assert (await box.exec("id -un; id -u; hostname")).stdout == b"agent\n1000\nsandbox\n"


async def test_the_environment_is_only_what_is_documented(box: Sandbox) -> None:
    expected = {b"PATH", b"LANG", b"HOME", b"USER", b"ALE_SANDBOX"}
    shells_own = {b"PWD", b"OLDPWD", b"SHLVL", b"_"}
    for result in (await box.exec(["env"]), await (await box.session()).run("env")):
        names = {line.split(b"=")[0] for line in result.stdout.splitlines()}
        assert names - shells_own == expected


async def test_the_first_process_shows_nothing_of_the_host(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await box.exec("cat /proc/1/environ; ls -l /proc/1/fd; cat /proc/1/maps")
    assert result.stdout == b""
    assert result.exit_code != 0


async def test_no_process_of_the_host_is_there_to_signal(box: Sandbox) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:  # noqa: ASYNC220
        result = await box.exec(f"kill -9 {other.pid}; kill -9 {os.getpid()}")
        assert b"No such process" in result.stderr
        listed = (await box.exec("ls /proc | grep -c '^[0-9]*$'")).stdout
        assert int(listed) <= 5  # the first, the shell, ls and grep
        await box.exec("kill -9 -1")
        assert other.poll() is None
        other.kill()


async def test_a_command_that_kills_all_it_can_leaves_a_sandbox_that_works(box: Sandbox) -> None:
    word = f"86400.{secrets.randbelow(10**9)}"
    session = await box.session()
    assert (await session.run("true")).exit_code == 0
    running = asyncio.ensure_future(session.run(f"sleep {word}"))
    assert (await box.exec(f"(sleep {word} &) ; kill -9 -1; echo here")).stdout == b"here\n"
    assert (await running).exit_code == 137
    assert (await box.exec("kill -9 1; kill -STOP 1; echo alive")).stdout == b"alive\n"
    await gone(word)


async def test_nothing_is_reached_over_the_network(backend: SandboxBackend) -> None:
    listener = socket.create_server(("0.0.0.0", 0))
    port = listener.getsockname()[1]
    code = """
import socket, sys
for address in ("127.0.0.1", sys.argv[2], "169.254.169.254", "8.8.8.8", "::1"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(family, kind) as sock:
                sock.settimeout(2)
                sock.connect((address, int(sys.argv[1])))
                sock.send(b"x")
                if kind == socket.SOCK_STREAM: print("reached", address)
        except OSError as error:
            pass
try:
    print(socket.getaddrinfo("example.com", 80))
except socket.gaierror:
    print("no name")
"""
    async with backend.open(SandboxSpec(network=False)) as box:
        own = socket.gethostbyname("localhost")
        result = await python(box, code, port, own)
        interfaces = await box.exec("cut -d: -f1 /proc/net/dev | tail -n +3")
    listener.close()
    assert result.stdout == b"no name\n"
    assert interfaces.stdout.split() == [b"lo"]


async def test_an_abstract_socket_of_the_host_is_not_there(box: Sandbox) -> None:
    name = secrets.token_hex(8)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        code = "import socket, sys; socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])"
        assert b"ConnectionRefusedError" in (await python(box, code, name)).stderr


async def test_loopback_inside_works(box: Sandbox) -> None:
    code = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
server.accept()[0].send(b"hello")
print(client.recv(5).decode())
"""
    assert (await python(box, code)).stdout == b"hello\n"


async def test_what_is_written_stays_inside(box: Sandbox) -> None:
    word = f"ale-{secrets.token_hex(8)}"
    await box.exec(
        f"for d in /usr/bin /usr/local/bin /etc /tmp /var/tmp /opt /; do echo x > $d/{word}; done"
    )
    seen = await box.exec(f"ls /usr/bin/{word} /usr/local/bin/{word} /etc/{word} /tmp/{word}")
    assert seen.exit_code == 0
    for folder in ("/usr/bin", "/usr/local/bin", "/etc", "/tmp", "/var/tmp", "/opt", "/"):
        assert not Path(folder, word).exists()


async def test_a_program_may_be_replaced_for_the_sandbox_alone(
    backend: SandboxBackend, box: Sandbox
) -> None:
    real = Path("/usr/bin/env").read_bytes()
    await box.exec("rm /usr/bin/env && printf '#!/bin/sh\\necho mine\\n' > /usr/bin/env")
    await box.exec("chmod +x /usr/bin/env; rm /usr/bin/seq")
    assert (await box.exec("env; command -v seq")).stdout == b"mine\n"
    assert Path("/usr/bin/env").read_bytes() == real
    async with backend.open(SandboxSpec()) as other:
        assert (await other.exec("seq 1")).stdout == b"1\n"


async def test_the_kernels_settings_can_not_be_written(box: Sandbox) -> None:
    for path in (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/1/oom_score_adj",
    ):
        assert (await box.exec(f"echo x > {path}")).exit_code != 0, path
        with pytest.raises((OSError, SandboxError)):
            await box.write(path, b"x")
    await box.exec("ln -s /proc/sys/kernel/core_pattern link")
    with pytest.raises((OSError, SandboxError)):
        await box.write("link", b"x")


async def test_devices_are_the_harmless_ones(box: Sandbox) -> None:
    result = await box.exec("ls /dev")
    assert set(result.stdout.decode().split()) == {
        *("ale", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm"),
        *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
    }
    assert (await box.exec("echo x > /dev/new")).exit_code != 0
    assert (await box.exec("mknod disk b 254 0; mknod kmsg c 1 11")).exit_code != 0


async def test_no_path_in_or_out_leads_to_the_host(
    box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of the host")
    up = "../" * 40
    await box.exec(f"ln -s {tmp_path} folder; ln -s {up}{tmp_path} relative; ln -s /proc/self r")
    for path in (
        f"{up}{tmp_path}/secret",
        "folder/secret",
        "relative/secret",
        f"/proc/self/root{tmp_path}/secret",
        f"/proc/1/root{tmp_path}/secret",
        f"/proc/1/cwd{tmp_path}/secret",
        f"/proc/{os.getpid()}/root{tmp_path}/secret",
        "r/environ",
    ):
        with pytest.raises((OSError, SandboxError)):
            await box.read(path)
        with pytest.raises((OSError, SandboxError)):
            await box.download(path, tmp_path / "out")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "secret").write_text("overwritten")
    for target in ("folder", "relative"):
        with pytest.raises((OSError, SandboxError)):
            await box.upload(tmp_path / "tree", target)
    assert (tmp_path / "secret").read_text() == "of the host"


async def test_a_second_download_does_not_go_through_a_link_of_the_first(
    box: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    await box.exec(f"mkdir out; ln -s {tmp_path}/host out/sub")
    await box.download("out", tmp_path / "target")
    await box.exec("rm out/sub; mkdir out/sub; echo planted > out/sub/file")
    with pytest.raises(SandboxError, match="is a link"):
        await box.download("out", tmp_path / "target")
    assert list((tmp_path / "host").iterdir()) == []


async def test_what_comes_out_is_not_set_user_id(box: Sandbox, tmp_path: Path) -> None:
    await box.exec("cp /bin/true run; chmod 6755 run; mkdir d; chmod 2777 d")
    await box.download("run", tmp_path / "run")
    await box.download("d", tmp_path / "d")
    assert (tmp_path / "run").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o777


async def test_no_capability_and_no_new_one(box: Sandbox) -> None:
    for result in (
        await box.exec("cat /proc/self/status"),
        await (await box.session()).run("cat /proc/self/status"),
    ):
        lines = dict(line.split(":\t", 1) for line in result.stdout.decode().splitlines())
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(lines[name], 16) == 0, name
        assert lines["NoNewPrivs"] == "1"
        assert lines["Seccomp"] == "2"


@pytest.mark.parametrize("name", sorted(seccomp.REFUSED))
async def test_a_call_that_no_task_needs_is_refused(box: Sandbox, name: str) -> None:
    if seccomp.REFUSED[name][list(seccomp.ARCHITECTURES).index(os.uname().machine)] is None:
        pytest.skip("not on this machine")
    assert await errno_of(box, name) == EPERM


async def test_no_other_call_creates_a_namespace(box: Sandbox) -> None:
    assert await errno_of(box, "clone", 0x10000000 | 17) == EPERM
    assert await errno_of(box, "clone", 0x00020000 | 17) == EPERM
    assert await errno_of(box, "clone3") == ENOSYS
    assert (await box.exec("unshare -U true; unshare -m true")).exit_code != 0


async def test_a_terminal_can_not_be_fed(box: Sandbox) -> None:
    for request in (0x5412, 0x541C):
        assert await errno_of(box, "ioctl", 0, request) == EPERM
        assert await errno_of(box, "ioctl", 0, request | 1 << 32) == EPERM


@pytest.mark.parametrize("family", [40, 38, 17, 31, 44])  # vsock, alg, packet, bluetooth, xdp
async def test_a_socket_family_that_is_not_confined_is_refused(box: Sandbox, family: int) -> None:
    assert await errno_of(box, "socket", family, 1) == EAFNOSUPPORT


async def test_a_debugger_works_inside(box: Sandbox) -> None:
    code = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    time.sleep(20)
print(libc.ptrace(16, child, 0, 0), libc.ptrace(16, 1, 0, 0))
os.kill(child, 9)
"""
    assert (await python(box, code)).stdout == b"0 -1\n"


LOOK = """
import os, sys
for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
    if pid == os.getpid():
        continue
    for what in ("mem", "environ", "fd", "maps"):
        path = f"/proc/{pid}/{what}"
        try:
            how = "r+b" if what == "mem" else "rb"
            os.listdir(path) if what == "fd" else open(path, how).read(1)
        except PermissionError:
            continue
        except OSError:
            pass
        print("opened", path, open(f"/proc/{pid}/cmdline").read())
"""


async def test_a_sessions_shell_and_the_first_process_can_not_be_looked_into(box: Sandbox) -> None:
    """Whoever reads the shell's memory could end its command in its name."""
    session = await box.session()
    result = await session.run(f"exec python3 -c '{LOOK}'")
    assert (result.stdout, result.stderr) == (b"", b"")
    other = await box.session()
    result = await other.run(f"python3 -c '{LOOK}'")
    assert (result.stdout, result.stderr) == (b"", b"")


async def test_the_end_of_a_command_is_not_forged_by_what_it_starts(box: Sandbox) -> None:
    session = await box.session()
    forge = """
import os, glob
for path in glob.glob("/dev/ale/io/*") + ["/dev/ale/io"]:
    print(path)
for fd in range(3, 256):
    try:
        os.write(fd, b"0 0\\n0 ready\\n")
    except OSError:
        continue
    print("wrote to", fd)
try:
    print(os.listdir("/dev/ale/io"))
except PermissionError:
    print("closed")
"""
    await box.write("forge.py", forge.encode())
    result = await session.run("python3 forge.py; (exit 7)", timeout_s=30)
    assert (result.exit_code, result.stdout) == (7, b"/dev/ale/io\nclosed\n")
    assert (await session.run("(exit 8)")).exit_code == 8


async def test_a_pipe_of_an_earlier_command_does_not_lead_into_a_later_one(box: Sandbox) -> None:
    session = await box.session()
    old = (await session.run("readlink /proc/self/fd/1")).stdout.decode().strip()
    assert old.startswith("/dev/ale/io/")
    result = await session.run(f"echo false > {old}; echo true")
    assert result.stdout == b"true\n"
    assert b"Read-only" in result.stderr or b"No such file" in result.stderr


async def test_a_replaced_shell_does_not_forge_results(box: Sandbox) -> None:
    await box.exec("rm -f /bin/sh /bin/bash /bin/dash; ln -s /bin/true /bin/sh")
    assert (await box.exec("echo ran; exit 9")).exit_code == 9
    assert (await box.exec(["sh", "-c", "echo ran; exit 9"])).exit_code == 0
    assert (await (await box.session()).run("(exit 4)")).exit_code == 4


@pytest.mark.parametrize(
    "command",
    [
        "mv /dev /device",
        "rm -rf /dev/ale",
        "mv /dev/ale/bin /dev/ale/other",
        "chmod 755 /dev/ale/bin/sh",
        "echo x > /dev/ale/bin/sh",
        "rm /dev/ale/bin/sh",
        "ln -s x /dev/ale/io/x",
        "umount /dev/ale/bin",
    ],
)
async def test_the_trusted_shells_can_not_be_moved_or_changed(box: Sandbox, command: str) -> None:
    assert (await box.exec(command)).exit_code != 0
    assert (await box.exec("exit 5")).exit_code == 5


async def test_output_without_end_is_cut_off_by_time_in_flat_memory(box: Sandbox) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await box.exec("yes", timeout_s=2.0, max_output_bytes=10_000)
    assert result.timed_out
    assert result.truncated
    assert len(result.stdout) == 10_000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 50


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep {word} &",
        "(setsid sh -c 'sleep {word} & sleep {word}' &)",
        "env -i setsid sleep {word} &",
        "(ulimit -m 100000; env -i setsid sleep {word} &)",
        "trap '' TERM HUP INT; nohup sleep {word} &",
    ],
)
async def test_nothing_outlives_the_sandbox(backend: SandboxBackend, escape: str) -> None:
    word = f"86400.{secrets.randbelow(10**9)}"
    async with backend.open(SandboxSpec()) as sandbox:
        await sandbox.exec(escape.format(word=word))
        await started(word)
    assert host_processes(word) == []


async def test_a_process_that_covers_its_tracks_is_ended_with_all_others(box: Sandbox) -> None:
    word = f"86400.{secrets.randbelow(10**9)}"
    await box.exec(f"(ulimit -m 100000; env -i setsid sleep {word} &)")
    await started(word)
    assert await box.end_processes() == 1
    assert host_processes(word) == []


async def test_two_sandboxes_do_not_see_one_another(backend: SandboxBackend, box: Sandbox) -> None:
    async with backend.open(SandboxSpec()) as other:
        await other.exec("(sleep 6789 &); echo x > /tmp/theirs; echo x > /dev/shm/theirs")
        result = await box.exec("ls /tmp /dev/shm; cat /proc/[0-9]*/cmdline")
        assert b"theirs" not in result.stdout
        assert b"6789" not in result.stdout


async def test_nothing_of_the_host_process_is_inherited(box: Sandbox, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        for result in (
            await box.exec("ls -l /proc/self/fd"),
            await (await box.session()).run("ls -l /proc/self/fd"),
        ):
            lines = result.stdout.decode().splitlines()[1:]
            assert {line.split()[8] for line in lines} == {"0", "1", "2", "3"}
            assert str(tmp_path) not in result.stdout.decode()


def test_the_numbers_of_calls_are_those_of_the_kernels_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    general = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists() or not general.exists():
        pytest.skip("the kernel's headers are not installed")
    for index, text in enumerate((header.read_text(), general.read_text())):
        known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text))
        assert len(known) > 250
        for name, numbers in seccomp.REFUSED.items():
            if name in known and numbers[index] is not None:
                assert numbers[index] == int(known[name]), name


@pytest.mark.skipif(sys.maxsize < 2**32, reason="needs a 64-bit machine")
def test_a_filter_is_made_for_both_machines_and_no_other() -> None:
    for machine in seccomp.ARCHITECTURES:
        made = seccomp.program(machine)
        assert len(made) % 8 == 0
        assert 50 < len(made) // 8 < 256
    with pytest.raises(KeyError):
        seccomp.program("sparc")
