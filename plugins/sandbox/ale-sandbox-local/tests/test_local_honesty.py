"""Each note on missing isolation is demonstrated; the rest is shown to be isolated."""

import asyncio
import os
import secrets
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.protocols import Sandbox, SandboxBackend
from ale.testing.sandbox.probes import host_processes
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandbox_local.plugin import probe


def is_sleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0")


def is_noted(backend: SandboxBackend, what: str) -> bool:
    return any(note.startswith(f"{what}:") for note in backend.capabilities.notes)


async def test_files_of_the_host_are_open_and_noted(
    backend: SandboxBackend, box: Sandbox, tmp_path: Path
) -> None:
    host = tmp_path / "outside"
    host.write_text("of the host")
    assert (await box.exec(["cat", str(host)])).stdout == b"of the host"
    assert (await box.exec(["rm", str(host)])).exit_code == 0
    assert not host.exists()
    assert is_noted(backend, "files")


async def test_a_listener_on_loopback_is_open_and_noted(
    backend: SandboxBackend, box: Sandbox
) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    assert (await box.exec(["python3", "-c", connect])).exit_code == 0
    server.close()
    await server.wait_closed()
    assert is_noted(backend, "network")
    assert not backend.capabilities.network_isolation


async def test_processes_of_the_host_are_open_to_signals_and_noted(
    backend: SandboxBackend, box: Sandbox
) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:  # noqa: ASYNC220
        assert (await box.exec(f"kill {process.pid}")).exit_code == 0
        assert process.wait(10) == -signal.SIGTERM
    assert is_noted(backend, "processes")


async def test_limits_count_for_each_process_and_that_is_noted(
    backend: SandboxBackend, box: Sandbox
) -> None:
    two = "(ulimit -d) & (ulimit -d) & wait"
    first, second = (await box.exec(two)).stdout.split()
    assert first == second
    assert is_noted(backend, "limits")


async def test_files_together_fill_the_disk_and_that_is_noted(
    make: Callable[..., SandboxBackend],
) -> None:
    backend = make(file_size_mb=1)
    async with backend.open(SandboxSpec()) as sandbox:
        fill = "for i in 1 2 3 4; do dd if=/dev/zero of=f$i bs=1M count=1; done; cat f* | wc -c"
        assert (await sandbox.exec(fill)).stdout.strip() == b"%d" % (4 << 20)
    assert backend.capabilities.limits["disk"] == "none"
    assert is_noted(backend, "limits")


async def test_a_session_can_forge_its_exit_codes_and_that_is_noted(
    backend: SandboxBackend, box: Sandbox
) -> None:
    session = await box.session()
    await session.run('command() { [ "$1" = echo ] && set -- echo 0 "$3"; builtin command "$@"; }')
    assert (await session.run("(exit 3)")).exit_code == 0
    assert (await box.exec("(exit 3)")).exit_code == 3
    assert is_noted(backend, "sessions")


def test_doctor_reports_every_note(backend: SandboxBackend) -> None:
    found = probe()
    assert found.usable
    output = {f"{key}: {text}" for key, text in found.facts.items()}
    for note in backend.capabilities.notes:
        subject, _, text = note.partition(": ")
        assert f"not isolated ({subject}): {text}" in output
    for name, kept in backend.capabilities.limits.items():
        words = {"enforced": "limits enforced", "best-effort": "best effort", "none": "no limit on"}
        assert name in found.facts[words[kept]].split(", ")
    assert found.facts["isolation"] == "process"


async def test_a_path_inside_a_file_still_names_the_first_after_a_fork_and_that_is_noted(
    backend: SandboxBackend, box: Sandbox
) -> None:
    await box.exec("pwd > here")
    twin = await box.fork()
    assert (await twin.read("here")).decode().strip() == box.workdir != twin.workdir
    await twin.close()
    assert is_noted(backend, "fork")


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep {word} &",
        "(setsid sh -c 'sleep {word} & sleep {word}' &)",
        "env -i setsid sleep {word} &",
        "(ulimit -m 100000; setsid sleep {word} &)",
        "nohup sh -c '(sleep {word} &)' >/dev/null 2>&1 &",
        "trap '' TERM HUP INT; sleep {word} &",
    ],
)
async def test_a_process_that_tries_to_leave_is_found(backend: SandboxBackend, escape: str) -> None:
    word = f"86400.{secrets.randbelow(10**9)}"
    async with backend.open(SandboxSpec()) as sandbox:
        await sandbox.exec(escape.format(word=word))
        await until(lambda: host_processes(word))
    assert host_processes(word) == []


async def test_a_process_that_removes_both_tags_is_not_found_and_that_is_noted(
    backend: SandboxBackend,
) -> None:
    word = f"86400.{secrets.randbelow(10**9)}"
    async with backend.open(SandboxSpec()) as sandbox:
        await sandbox.exec(f"(ulimit -m 100000; env -i setsid sleep {word} &)")
        # Until all the programs on the way have become the last one.
        await until(lambda: any(map(is_sleep, host_processes(word))))
    hidden = host_processes(word)
    for pid in hidden:
        os.kill(pid, signal.SIGKILL)
    assert len(hidden) == 1
    assert is_noted(backend, "cleaning up")


async def test_the_environment_of_the_host_process_is_readable_and_that_is_noted(
    backend: SandboxBackend, box: Sandbox
) -> None:
    with subprocess.Popen(["sleep", "60"], env={"KIT_KEY": "secret"}) as process:  # noqa: ASYNC220
        result = await box.exec(f"cat /proc/{process.pid}/environ")
        process.kill()
    assert b"KIT_KEY=secret" in result.stdout
    assert is_noted(backend, "processes")


async def test_the_environment_is_only_what_is_documented(box: Sandbox) -> None:
    result = await box.exec(["env"])
    names = {line.split(b"=")[0] for line in result.stdout.splitlines()}
    # PWD is set by the shell itself.
    assert names - {b"PWD", b"OLDPWD", b"SHLVL", b"_"} == {
        b"PATH",
        b"LANG",
        b"HOME",
        b"TMPDIR",
        b"ALE_SANDBOX",
    }
    session = await (await box.session()).run("env")
    inner = {line.split(b"=")[0] for line in session.stdout.splitlines()}
    assert inner - {b"PWD", b"OLDPWD", b"SHLVL", b"_"} == names - {b"PWD", b"OLDPWD"}


async def test_home_and_tmpdir_are_the_sandboxes_own(box: Sandbox) -> None:
    result = await box.exec('echo "$HOME"; dirname "$TMPDIR"; mktemp')
    owner, parent, temporary = result.stdout.decode().split()
    assert owner == box.workdir
    assert parent == str(Path(box.workdir).parent)
    assert temporary.startswith(parent)
    assert await box.read(temporary) == b""


async def test_folders_are_closed_to_other_users(box: Sandbox) -> None:
    for folder in (Path(box.workdir), Path(box.workdir).parent, Path(box.workdir).parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


async def test_a_folder_of_another_user_is_refused(backend: SandboxBackend, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"ale-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SandboxError, match="not a folder of this user"):
        async with backend.open(SandboxSpec()):
            pass


async def test_a_read_only_tree_is_removed(backend: SandboxBackend) -> None:
    async with backend.open(SandboxSpec()) as sandbox:
        await sandbox.exec("mkdir -p a/b; touch a/b/c; chmod 000 a/b; chmod 500 a")
        top = Path(sandbox.workdir).parent
    assert not top.exists()


async def test_a_nul_byte_is_the_commands_failure(box: Sandbox) -> None:
    for result in (
        await box.exec("echo a\0b"),
        await box.exec(["echo", "a\0b"]),
        await box.exec("echo", cwd="a\0b"),
        await (await box.session()).run("echo a\0b"),
    ):
        assert result.exit_code == 126
        assert b"NUL" in result.stderr


async def test_a_lone_surrogate_does_no_harm(box: Sandbox) -> None:
    assert (await box.exec("echo '\ud800' | wc -c")).stdout.strip() == b"4"


async def test_too_long_an_argument_is_the_commands_failure(box: Sandbox) -> None:
    result = await box.exec(["echo", "x" * 1_000_000])
    assert result.exit_code == 126
    assert result.stderr == b"Argument list too long\n"


async def test_a_background_writer_survives_its_command(box: Sandbox) -> None:
    """It keeps writing to the output of a command that has ended, and does not die of it."""
    await box.exec("(sleep 0.1; for i in 1 2 3; do seq 30000; done; echo done > mark) &")
    for _ in range(500):
        if (await box.exec("cat mark")).stdout == b"done\n":
            break
        await asyncio.sleep(0.02)
    assert await box.read("mark") == b"done\n"


async def test_ignore_image_runs_the_task_on_the_host(
    make: Callable[..., SandboxBackend],
) -> None:
    async with make(ignore_image=True).open(SandboxSpec(image="python:3.12-slim")) as sandbox:
        assert (await sandbox.exec("echo ran")).stdout == b"ran\n"


async def test_what_starts_after_nobody_was_found_is_found_by_the_next_look(box: Sandbox) -> None:
    for _ in range(2):
        await (await box.session()).close()
        assert await box.end_processes() == 0
        await box.exec("(sleep 600 >/dev/null 2>&1 &)")
        assert await box.end_processes() == 1
