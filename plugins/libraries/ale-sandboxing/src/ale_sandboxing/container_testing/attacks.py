"""Attacks from inside the container."""

import asyncio
import os
import resource
import secrets
import socket
import subprocess
import time
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.testing.sandbox.probes import (
    beat,
    command_lines,
    host_processes,
    keeps_beating,
    stopped,
)
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.tools import PATIENCE_S, Make, opened, out

# The processes of the supervisor: 1, and whatever else runs its shell.
_SUPERVISORS = """\
supervisors=
for process in /proc/[0-9]*; do
  line=$( (tr '\\0' ' ' <$process/cmdline) 2>/dev/null)
  case $line in /.ale/sh*) supervisors="$supervisors $process" ;; esac
done
[ -n "$supervisors" ] || exit 9
"""
_PEEK = (
    _SUPERVISORS + "for process in $supervisors; do"
    " for file in environ mem maps fd/0 fd/1 fd/3 root/etc cwd/.; do"
    "  (: <$process/$file) 2>/dev/null && echo read $process/$file;"
    "  (: >$process/$file) 2>/dev/null && echo wrote $process/$file;"
    " done; done; echo tried $supervisors"
)
# Perl's way to everything that ptrace's rules guard: attach, read memory, take a descriptor.
_TRACE = """\
my %numbers = (x86_64 => [101, 310], aarch64 => [117, 270]);
chomp(my $machine = `uname -m`);
my ($ptrace, $read) = @{$numbers{$machine}};
my $opened = 0;
for my $pid (@ARGV) {
    $pid =~ s,/proc/,,;
    $opened++ if syscall($ptrace, 16, $pid + 0, 0, 0) == 0;
    my $buffer = "\0" x 8;
    my $vector = pack("P8 Q", $buffer, 8);
    $opened++ if syscall($read, $pid + 0, $vector, 1, $vector, 1, 0) >= 0;
    my $handle = syscall(434, $pid + 0, 0);
    die "no handle" if $handle < 0;
    $opened++ if syscall(438, $handle, 1, 0) >= 0;
}
print $opened;
"""


class AttackProbes:
    """Against the host, against other commands, and against the supervisor."""

    async def test_commands_have_no_privilege_and_can_get_none(self, box: ContainerSandbox) -> None:
        status = await out(box, "cat /proc/self/status")
        facts = dict(line.split(":", 1) for line in status.splitlines())
        for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
            assert int(facts[name], 16) == 0, name
        assert facts["NoNewPrivs"].strip() == "1"
        assert facts["Seccomp"].strip() == "2"

    async def test_the_system_can_not_be_changed(self, box: ContainerSandbox) -> None:
        for attempt in (
            "echo 1 >/proc/sys/kernel/panic",
            "echo b >/proc/sysrq-trigger",
            "mount -t proc proc /tmp",
            "mount -o remount,rw /.ale",
            "mknod /tmp/disk b 8 0",
            "chroot / true",
            "echo x >/sys/kernel/mm/ksm/run",
        ):
            result = await box.exec(attempt, timeout_s=PATIENCE_S)
            assert result.exit_code != 0, attempt

    async def test_a_process_of_the_host_gets_no_signal(self, box: ContainerSandbox) -> None:
        with subprocess.Popen(["sleep", "600"]) as victim:
            await box.exec(f"kill -9 {victim.pid}; kill -9 {os.getpid()}", timeout_s=PATIENCE_S)
            assert victim.poll() is None
            victim.kill()

    async def test_without_a_network_there_is_none(self, box: ContainerSandbox) -> None:
        assert await out(box, "ls /sys/class/net") == "lo"
        assert "00000000" not in await out(box, "cat /proc/net/route")
        if (await box.exec("command -v getent")).exit_code == 0:
            found = await box.exec("getent hosts example.com", timeout_s=PATIENCE_S)
        else:
            found = await box.exec("nslookup example.com", timeout_s=PATIENCE_S)
        assert found.exit_code != 0

    async def test_an_abstract_socket_of_the_host_is_not_visible(
        self, box: ContainerSandbox
    ) -> None:
        word = secrets.token_hex(8)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0ale-{word}")
            listener.listen()
            assert word not in await out(box, "cat /proc/net/unix")

    async def test_the_supervisors_shell_can_be_neither_read_nor_changed(
        self, box: ContainerSandbox
    ) -> None:
        for attempt in (
            "echo x >/.ale/new",
            "rm /.ale/sh",
            "mv /.ale /other",
            "cat /.ale/sh",
            "cp /bin/sh /.ale/sh",
            "chmod 777 /.ale/sh",
            "chmod 777 /.ale",
        ):
            result = await box.exec(attempt, timeout_s=PATIENCE_S)
            assert result.exit_code != 0, attempt

    async def test_the_supervisors_memory_and_files_cannot_be_read(
        self, box: ContainerSandbox
    ) -> None:
        """Neither memory nor environment nor descriptors, of process 1 or of any worker."""
        said = await out(box, _PEEK)
        assert said.startswith("tried /proc/1 /proc/"), said

    async def test_with_dac_override_they_can_and_a_note_states_it(self, make: Make) -> None:
        """Why the shell is sealed: who writes to a worker's stream can end another's command."""
        backend = make(capabilities=("DAC_OVERRIDE",))
        assert any(note.startswith("supervisor:") for note in backend.capabilities.notes)
        async with opened(backend) as box:
            said = await out(box, _PEEK)
            assert "read /proc/1/mem" in said
            assert "wrote /proc/1/fd/1" in said

    async def test_the_supervisor_cannot_be_traced(self, box: ContainerSandbox) -> None:
        if (await box.exec("command -v perl")).exit_code != 0:
            return  # the image with Perl shows it
        await box.write("leftover.pl", _TRACE.encode())
        assert await out(box, _SUPERVISORS + "perl leftover.pl $supervisors") == "0"
        # The attack works on a process that is not sealed.
        reached = await out(box, "sleep 30 & perl leftover.pl $!; kill -9 $!")
        assert int(reached) >= 1

    async def test_with_the_sealed_shell_no_exit_code_can_be_forged(
        self, box: ContainerSandbox
    ) -> None:
        victim = asyncio.ensure_future(box.exec("sleep 1.5; exit 7"))
        forge = _SUPERVISORS + (
            "for process in $supervisors; do for fd in 0 1 2 3 4 5 6 7 8 9; do"
            " (printf 'again\\nk 0 0\\n' >$process/fd/$fd) 2>/dev/null; done; done;"
            "printf 'e 0\\n' >&2; printf 'e 0\\n'"
        )
        for _ in range(5):
            result = await box.exec(forge, timeout_s=PATIENCE_S)
            assert (result.exit_code, result.stdout, result.stderr) == (0, b"e 0\n", b"e 0\n")
        assert (await victim).exit_code == 7

    async def test_killing_everything_spares_the_sandbox(self, box: ContainerSandbox) -> None:
        session = await box.session()
        result = await box.exec("kill -9 -1; sleep 600", timeout_s=PATIENCE_S)
        # It killed its own worker too, so it counts as killed.
        assert (result.exit_code, result.timed_out) == (137, False)
        assert (await box.exec("echo alive", timeout_s=PATIENCE_S)).stdout == b"alive\n"
        await until(lambda: session.closed, "the end of the session")
        assert (await (await box.session()).run("echo on")).stdout == b"on\n"

    async def test_process_1_can_be_neither_killed_nor_stopped(self, box: ContainerSandbox) -> None:
        for signal in ("KILL", "STOP", "TERM", "INT", "HUP", "SEGV"):
            await box.exec(f"kill -{signal} 1", timeout_s=PATIENCE_S)
        assert (await box.exec("echo alive", timeout_s=PATIENCE_S)).stdout == b"alive\n"

    async def test_limits_put_on_process_1_end_the_sandbox_after_some_restarts(
        self, make: Make
    ) -> None:
        """The supervisor can't be started any more; each of its failures is a line to this host."""
        async with opened(make()) as sandbox:
            if (await sandbox.exec("command -v prlimit")).exit_code != 0:
                return  # the image with util-linux shows it
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

            async def attack_and_end() -> None:
                for _ in range(10):
                    await sandbox.exec("prlimit --pid 1 --as=1; kill -9 -1", timeout_s=PATIENCE_S)
                    await asyncio.sleep(0.5)
                    await sandbox.end_processes()
                    assert await out(sandbox, "echo alive") == "alive"

            with pytest.raises(SandboxError, match=r"started again \d times"):
                await attack_and_end()
            with pytest.raises(SandboxError, match=r"started again \d times"):
                await sandbox.exec("true")
            grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            assert grown_mib < 50, f"{grown_mib:.0f} MiB"

    async def test_shared_memory_ends_with_the_processes_that_use_it(
        self, box: ContainerSandbox
    ) -> None:
        """As the kit asks, in an image that has the program for it."""
        if (await box.exec("command -v ipcmk")).exit_code == 0:
            await out(box, "ipcmk -M 8388608")
            await box.end_processes()
            assert await out(box, "tail -n +2 /proc/sysvipc/shm") == ""

    async def test_killing_its_own_group_ends_only_that_command(
        self, box: ContainerSandbox
    ) -> None:
        other = asyncio.ensure_future(box.exec("sleep 1; exit 5"))
        result = await box.exec("sleep 60 & kill -9 0", timeout_s=PATIENCE_S)
        assert result.exit_code == 137
        assert (await other).exit_code == 5

    async def test_end_processes_ends_what_hides_from_a_timeout_and_a_note_states_it(
        self, make: Make
    ) -> None:
        backend = make()
        assert any(note.startswith("timeouts:") for note in backend.capabilities.notes)
        async with opened(backend) as sandbox:
            hide = f"(ulimit -m 1000; {beat('beat')}) & sleep 60"
            assert (await sandbox.exec(hide, timeout_s=2.0)).timed_out
            await keeps_beating(sandbox, "beat")
            assert await sandbox.end_processes() >= 1
            await stopped(sandbox, "beat", after="`end_processes`")

    async def test_no_escape_outlives_the_sandbox(self, make: Make) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        async with opened(make()) as sandbox:
            for escape in (
                f"(setsid sleep {word} &)",
                f"(env -i PATH=$PATH setsid sh -c 'trap : TERM HUP; sleep {word}; :' &)",
                f"(ulimit -m 500; env -i PATH=$PATH setsid nohup sleep {word} >/dev/null 2>&1 &)",
            ):
                await sandbox.exec(escape, timeout_s=PATIENCE_S)
            await until(lambda: len(host_processes(word)) >= 3, "the processes on the host")
        assert host_processes(word) == []

    async def test_a_supervisor_that_is_stopped_keeps_no_sandbox_open(self, make: Make) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"

        def all_stopped() -> bool:
            states = [Path(f"/proc/{pid}/stat").read_text() for pid in host_processes(f"{word}\0")]
            return bool(states) and all(") T " in state for state in states)

        async with opened(make()) as sandbox:
            stop = f"sleep {word} & sleep 0.2; kill -STOP -1"
            running = asyncio.ensure_future(sandbox.exec(stop))
            await until(all_stopped, "the stop of all that runs")
            await sandbox.close()
            with pytest.raises(SandboxError, match="closed"):
                await running
        assert host_processes(word) == []

    async def test_output_without_end_costs_no_memory(self, box: ContainerSandbox) -> None:
        await box.exec("(yes >&2 &) ; yes &", timeout_s=PATIENCE_S)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await box.exec("yes", timeout_s=1, max_output_bytes=10_000)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert (result.timed_out, result.truncated, len(result.stdout)) == (True, True, 10_000)
        assert grown_mib < 50
        assert (await box.exec("echo alive", timeout_s=PATIENCE_S)).stdout == b"alive\n"

    async def test_what_killed_processes_have_printed_is_not_the_next_command_s(
        self, box: ContainerSandbox
    ) -> None:
        """The first of them ends the command; the others print until they are killed too."""
        for _ in range(5):
            await box.exec("for i in 1 2 3 4 5 6 7 8; do yes & done; yes", timeout_s=0.5)
            assert await out(box, "echo alive") == "alive"

    async def test_with_no_process_left_a_command_fails_and_a_timeout_still_kills(
        self, make: Make
    ) -> None:
        async with opened(make(processes=24)) as sandbox:
            fill = "i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i + 1)); done"
            await sandbox.exec(fill, timeout_s=PATIENCE_S)
            many = [sandbox.exec("sleep 0.2; echo ran", timeout_s=5) for _ in range(30)]
            results = await asyncio.gather(*many)
            # None is lost or hangs, and none that has not run has exit code 0.
            assert all(r.exit_code != 0 for r in results if r.stdout != b"ran\n")
            limited = sandbox.capabilities.limits["processes"] != "none"
            assert any(r.exit_code != 0 for r in results) is limited
            assert await sandbox.end_processes() >= 10
            assert await out(sandbox, "echo alive") == "alive"

    async def test_a_command_without_a_process_ends_no_other(self, make: Make) -> None:
        async def nearly_full(filled: int) -> None:
            word = f"86400.{secrets.randbelow(10**9)}"
            async with backend.open(SandboxSpec()) as sandbox:
                fill = f"i=0; while [ $i -lt {filled} ]; do sleep {word} & i=$((i + 1)); done"
                assert (await sandbox.exec(fill, timeout_s=PATIENCE_S)).exit_code == 0
                await until(lambda: running(word) == filled, "the start of all that fills it")
                # Each needs a worker, and the workers need processes too.
                many = [sandbox.exec("sleep 0.2; echo ran", timeout_s=20) for _ in range(30)]
                results = await asyncio.gather(*many)
                assert all(r.exit_code != 0 for r in results if r.stdout != b"ran\n")
                assert running(word) == filled
                await sandbox.end_processes()
                await until(lambda: not running(word), "the end of all that filled it")

        def running(word: str) -> int:
            return sum(f"sleep\0{word}\0".encode() == line for line in command_lines().values())

        backend = make(processes=24)
        await asyncio.gather(*map(nearly_full, (15, 16, 17, 18, 19)))
        await backend.aclose()

    async def test_descriptors_without_end_are_stopped(self, make: Make) -> None:
        async with opened(make(open_files=64)) as sandbox:
            assert await out(sandbox, "ulimit -n") == "64"
            assert (await sandbox.exec("ulimit -n 65")).exit_code != 0
            assert (await sandbox.exec("sh -c 'exec 70</dev/null'")).exit_code != 0

    async def test_a_sparse_file_of_a_terabyte_does_not_fill_the_host(
        self, box: ContainerSandbox, tmp_path: Path
    ) -> None:
        await box.exec("dd if=/dev/zero of=hole bs=1 count=1 seek=1000000000000 2>/dev/null")
        started_at = time.monotonic()
        try:
            await box.download("hole", tmp_path / "hole")
        except (SandboxError, FileNotFoundError):
            pass
        else:
            assert (tmp_path / "hole").stat().st_size < 1 << 32
        assert time.monotonic() - started_at < PATIENCE_S
