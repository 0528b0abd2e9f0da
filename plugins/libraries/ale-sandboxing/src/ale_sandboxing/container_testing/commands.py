"""The environment of commands, and what they leave behind."""

import asyncio
from typing import Any

import pytest

from ale.errors import SandboxError
from ale.testing.waiting import until
from ale_sandboxing.container import worker
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.tools import PATIENCE_S, Make, opened, out


class CommandProbes:
    """Beyond the contract: process groups, signals, orphans, users, many at once."""

    async def test_a_command_leads_a_process_group_of_its_own(self, box: ContainerSandbox) -> None:
        stat = (await out(box, "cat /proc/self/stat; echo $$")).split()
        group, session = stat[4], stat[5]
        assert stat[-1] == group == session

    async def test_no_signal_is_ignored_or_blocked(self, box: ContainerSandbox) -> None:
        status = await out(box, "sh -c 'cat /proc/self/status; :' | cat")
        facts = dict(line.split(":", 1) for line in status.splitlines())
        assert int(facts["SigBlk"], 16) == 0
        # SIGINT, SIGPIPE, SIGTERM, SIGCHLD: what a shell's background jobs would not get.
        ignored = int(facts["SigIgn"], 16)
        assert not [number for number in (2, 13, 15, 17) if ignored >> number - 1 & 1]

    async def test_orphans_are_reaped(self, box: ContainerSandbox) -> None:
        await out(box, "i=0; while [ $i -lt 30 ]; do (sleep 0.1 &); i=$((i + 1)); done")

        async def none_left() -> bool:
            zombies = await box.exec("cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '")
            return zombies.stdout == b"0\n"

        await until(none_left, "the end of all zombies")

    async def test_forty_commands_and_sessions_in_parallel(self, box: ContainerSandbox) -> None:
        async def command(number: int) -> None:
            result = await box.exec(f"sleep 0.3; echo {number}; exit {number}")
            assert (result.exit_code, result.stdout) == (number, b"%d\n" % number)

        async def session(number: int) -> None:
            shell = await box.session()
            result = await shell.run(f"sleep 0.3; echo {number}")
            assert result.stdout == b"%d\n" % number
            await shell.close()

        await asyncio.gather(*map(command, range(20)), *map(session, range(20)))
        assert (await box.exec("echo alive")).stdout == b"alive\n"

    async def test_a_command_runs_as_another_user(self, box: ContainerSandbox) -> None:
        results = await asyncio.gather(
            *(box.exec("id -u; touch /workspace/x || echo kept", user="65534") for _ in range(3))
        )
        assert [result.stdout for result in results] == [b"65534\nkept\n"] * 3
        assert (await box.exec("id -G", user="1000")).stdout == b"1000\n"
        result = await box.exec("sleep 600 & sleep 600", user="65534", timeout_s=0.3)
        assert (result.timed_out, result.exit_code) == (True, 137)
        await box.exec("sleep 600 >/dev/null 2>&1 &", user="65534", timeout_s=PATIENCE_S)
        assert await box.end_processes() >= 1

    async def test_a_user_that_the_container_lacks_is_named(self, box: ContainerSandbox) -> None:
        with pytest.raises(SandboxError, match="has no user 'no-such-user'"):
            await box.exec("true", user="no-such-user")
        assert (await box.exec("echo alive")).stdout == b"alive\n"

    async def test_a_container_may_have_another_user_from_the_start(self, make: Make) -> None:
        async with opened(make(user="1234")) as sandbox:
            assert await out(sandbox, "id -u; id -G; touch mine; stat -c %g mine") == (
                "1234\n1234\n1234"
            )
        async with opened(make(user="1234:5678")) as sandbox:
            assert await out(sandbox, "id -u; id -g") == "1234\n5678"
            assert await out(sandbox, "touch mine; stat -c '%u %g' mine") == "1234 5678"
            await sandbox.write("a/b", b"data", mode=0o640)
            assert await out(sandbox, "stat -c '%u %g %a' a a/b") == "1234 5678 755\n1234 5678 640"
            assert (await sandbox.exec("sleep 60", timeout_s=0.3)).timed_out
            status = await out(sandbox, "cat /proc/1/environ || cat /proc/1/maps || echo sealed")
            assert status == "sealed"

    async def test_odd_variables_arrive(self, box: ContainerSandbox) -> None:
        env = {"UID": "5", "a.b": "dots", "IFS": "x", "PLAIN": "1", "PATH": "/bin:/usr/bin"}
        result = await box.exec(["env"], env=env)
        assert {f"{name}={value}" for name, value in env.items()} <= set(
            result.stdout.decode().splitlines()
        )

    async def test_a_command_sees_nothing_of_what_runs_it(self, box: ContainerSandbox) -> None:
        assert "ALE" not in await out(box, "env; set; ls -l /proc/self/fd; cat /proc/$$/cmdline")

    async def test_a_command_that_is_cancelled_as_it_begins_is_killed(
        self, box: ContainerSandbox
    ) -> None:
        await box.exec("true")
        running = asyncio.ensure_future(box.exec("sleep 600"))
        while not box._commands._running:  # noqa: ASYNC110 - it begins a millisecond later
            await asyncio.sleep(0)
        (command,) = box._commands._running.values()
        command.job.begun.add_done_callback(lambda _: running.cancel())
        await asyncio.wait([running], timeout=PATIENCE_S)
        assert running.cancelled()
        assert not box._commands._running

    async def test_the_processes_ended_are_those_of_commands(self, box: ContainerSandbox) -> None:
        await box.exec("sleep 600 & sleep 600 &")
        running = asyncio.ensure_future(box.exec("exec sleep 600"))
        await until(lambda: len(box._commands._running) == 1, "the start of the command")
        (command,) = box._commands._running.values()
        assert await command.job.begun
        await asyncio.gather(*(box.exec("true") for _ in range(3)))
        # A worker whose end has not been noticed yet.
        idle = box._commands.pool(None)._idle
        await until(lambda: bool(idle), "the return of a worker")
        ended = idle[0]
        ended._stream.pause(PATIENCE_S)
        ended.send(b"exit\n")
        await asyncio.sleep(0.5)
        assert await box.end_processes() == 3
        assert (await running).exit_code == 137

    async def test_a_restart_loses_only_running_processes(
        self, box: ContainerSandbox, monkeypatch: Any
    ) -> None:
        """A program that stops the supervisor is ended with the whole container."""
        monkeypatch.setattr(worker, "ANSWER_S", 2.0)
        await box.exec("echo kept >file")
        stopper = asyncio.ensure_future(box.exec("kill -STOP -1; sleep 600"))
        await asyncio.sleep(0.5)
        await box.end_processes()
        assert (await stopper).exit_code == 137
        assert await out(box, "cat file") == "kept"
        assert (await (await box.session()).run("cat file")).stdout == b"kept\n"

    async def test_a_name_with_pattern_characters_is_taken_literally(
        self, box: ContainerSandbox
    ) -> None:
        for name in ("star*", "mark?", "set[ab]", "back\\slash", "per%20cent", "{a,b}"):
            await box.write(f"{name}/{name}", name.encode())
            await box.write("star-other", b"another")
            assert await box.read(f"{name}/{name}") == name.encode()
            assert (await box.exec(["cat", f"{name}/{name}"])).stdout == name.encode()
