"""Probes of `Session`: a persistent shell whose framing no command can break."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ale.errors import SandboxError
from ale.protocols import Sandbox, Session
from ale.testing.sandbox import probes
from ale.testing.sandbox._guard import time_limited
from ale.testing.sandbox.probes import MIB, beat, case, expect, size, started, stopped
from ale.testing.waiting import until


@contextlib.asynccontextmanager
async def in_session(box: Sandbox, command: str) -> AsyncIterator[Session]:
    """A separate session for one of several commands."""
    session = await box.session()
    with case(command):
        yield session
    await session.close()


async def missing(box: Sandbox) -> bool:
    """Is the workspace gone?"""
    return (await box.exec(f"test -d {box.workdir}", cwd="/")).exit_code != 0


async def still_works(session: Session) -> None:
    """Check that the session answers correctly, and its variables are still set."""
    assert not session.closed, "the session is closed"
    result = await session.run("echo $kept; echo err >&2; (exit 5)")
    expect(result, exit_code=5, stdout=b"before\n", stderr=b"err\n")


@time_limited
@pytest.mark.asyncio
class SessionProbes:
    async def test_folder_variables_and_functions_persist(self, box: Sandbox) -> None:
        session = await box.session()
        await session.run("mkdir sub; cd sub; a=1; export b=2; f() { echo f$1; }")
        result = await session.run("pwd -P; echo $a $b; f 3; sh -c 'echo $b'")
        assert result.stdout.decode() == f"{box.workdir}/sub\n1 2\nf3\n2\n"

    async def test_the_last_status_is_kept(self, box: Sandbox) -> None:
        session = await box.session()
        expect(await session.run("(exit 42)"), exit_code=42)
        expect(await session.run("echo $?"), stdout=b"42\n")
        expect(await session.run("echo $?"), stdout=b"0\n")

    async def test_the_exit_code_is_the_true_one(self, box: Sandbox) -> None:
        for command, code in (
            ("true", 0),
            ("false", 1),
            ("(exit 7)", 7),
            ("no-such-command-anywhere", 127),
            ("sh -c 'kill -9 $$'", 137),
            ("", 0),
            ("# a comment", 0),
            ("true # a comment", 0),
            ("\n\nfalse\n\n", 1),
        ):
            async with in_session(box, command) as session:
                expect(await session.run(command), exit_code=code)
                assert not session.closed

    async def test_stdout_and_stderr_are_separate_and_exact(self, box: Sandbox) -> None:
        session = await box.session()
        for command in ("true", "cd /", "sleep 0 &", "x=1", "sleep 0 & wait"):
            quiet = await session.run(command)
            assert quiet.stderr == b"", command
        result = await session.run("echo out; echo err >&2")
        expect(result, stdout=b"out\n", stderr=b"err\n")

    async def test_output_without_a_last_newline_is_exact(self, box: Sandbox) -> None:
        session = await box.session()
        result = await session.run(r"printf 'a\nb'; printf '\377\000' >&2")
        expect(result, stdout=b"a\nb", stderr=b"\xff\x00")

    async def test_output_like_the_protocols_own_is_only_output(self, box: Sandbox) -> None:
        """All that a command can see of the shell and its framing, printed back."""
        session = await box.session()
        await session.run("kept=before")
        seen = await session.run("set; env; cat /proc/$$/cmdline /proc/$$/environ; trap; alias")
        await box.write("seen", seen.stdout + b"\n0\n1 1\n2 2\n__exit__:0\n\x1e0\x1e\n")
        result = await session.run("cat seen; cat seen >&2; echo kept=$kept; (exit 3)")
        expect(result, exit_code=3)
        assert result.stdout.endswith(b"kept=before\n")
        await still_works(session)

    async def test_a_syntax_error_is_the_commands_own_failure(self, box: Sandbox) -> None:
        for command in (
            "echo 'open",
            'echo "open',
            "echo `open",
            "echo $(open",
            "if true; then",
            "for x in 1 2; do echo $x",
            ")",
            "}",
            "done",
            "echo a &&",
            "case x in",
            "a() {",
            ";;",
        ):
            async with in_session(box, command) as session:
                await session.run("kept=before")
                result = await session.run(command)
                assert result.exit_code != 0, "a syntax error has exit code 0"
                assert result.stderr, "stderr does not say what failed"
                await still_works(session)

    async def test_an_intrusive_command_does_not_break_the_session(self, box: Sandbox) -> None:
        for command in (
            "cat <<END\nno end of it",
            "echo a \\",
            "cat",
            "read line",
            "break; continue",
            "trap 'echo trapped' EXIT; trap '' TERM",
            "set -x; set -v",
            "set -u; set -f; set -C",
            "IFS=0123456789",
            "printf() { :; }; echo() { :; }; read() { :; }; unset -f printf echo read",
            "PATH=/nowhere; hash -r; PATH=/usr/bin:/bin",
            "alias echo=false; unalias echo",
            "exec 3>three 4<&3; exec 3>&- 4<&-",
            "set -- a b c; shift",
            "umask 077; cd /",
            "trap 'echo got' USR1; kill -USR1 $$",
            "unset HOME PWD",
            "eval 'eval \"echo deep\"'",
            "sleep 60 &",
            "-n",
        ):
            async with in_session(box, command) as session:
                await session.run("kept=before")
                await session.run(command)
                await session.run("{ set +x; set +v; } 2>/dev/null")
                await still_works(session)

    async def test_a_shell_without_its_outputs_still_answers(self, box: Sandbox) -> None:
        for command in ("exec >&- 2>&-", "exec >other 2>&1", "exec </dev/null"):
            async with in_session(box, command) as session:
                await session.run(command)
                expect(await session.run("(exit 4)"), exit_code=4)

    async def test_return_at_the_top_fails_or_ends_the_shell(self, box: Sandbox) -> None:
        """Shells differ in what it means, but none may take it for success or lose its framing."""
        for command in ("return 3", "return 1 2", "break 1 2 3; return x"):
            async with in_session(box, command) as session:
                await session.run("kept=before")
                assert (await session.run(command)).exit_code != 0
                if not session.closed:
                    await still_works(session)

    async def test_a_reader_of_stdin_does_not_eat_the_next_command(self, box: Sandbox) -> None:
        session = await box.session()
        reader = asyncio.ensure_future(session.run("cat; head -c 5; echo read"))
        follower = asyncio.ensure_future(session.run("echo next"))
        expect(await reader, stdout=b"read\n")
        expect(await follower, stdout=b"next\n")

    async def test_a_command_that_ends_the_shell_closes_the_session(self, box: Sandbox) -> None:
        for command, code in (
            ("exit 3", 3),
            ("exit", 0),
            ("set -e; false; echo not here", 1),
            ("exec sh -c 'exit 5'", 5),
            ("kill -9 $$", 137),
            ("(exit 1); exit 9; echo not here", 9),
        ):
            async with in_session(box, command) as session:
                result = await session.run(f"echo output; {command}")
                expect(result, exit_code=code, stdout=b"output\n", stderr=b"")
                assert session.closed, "the session is not closed"
                with pytest.raises(SandboxError):
                    await session.run("echo on")
                expect(await box.exec("echo alive"), stdout=b"alive\n")

    async def test_a_workspace_that_is_gone_is_said_and_no_more(self, box: Sandbox) -> None:
        """A folder that the agent removed is an observation: the sandbox is not lost by it."""
        session = await box.session()
        expect(await session.run('rm -rf "$PWD"; exit 3'), exit_code=3)
        if not await missing(box):
            return  # nothing inside can remove it
        refused = await box.exec("true")
        assert refused.exit_code != 0
        assert box.workdir.encode() in refused.stderr
        fresh = await box.session()
        result = await fresh.run("echo on; echo err >&2")
        expect(result, exit_code=0, stdout=b"on\n")
        assert box.workdir.encode() in result.stderr, "nothing says that the folder is gone"
        assert result.stderr.endswith(b"err\n")
        expect(await fresh.run("echo on"), stdout=b"on\n", stderr=b"")
        late = await (await box.session()).run("sleep 60", timeout_s=0.5)
        assert late.timed_out
        with pytest.raises(FileNotFoundError):
            await box.read("file")
        await box.write("file", b"new")
        expect(await (await box.session()).run("cat file"), stdout=b"new", stderr=b"")

    async def test_a_background_job_does_not_disturb_later_commands(self, box: Sandbox) -> None:
        session = await box.session()
        first = await session.run("(sleep 0.3; echo late; echo later >&2; echo x > late) & echo a")
        expect(first, stdout=b"a\n")

        async def late() -> bool:
            result = await session.run("sleep 0.05; echo mine")
            expect(result, stdout=b"mine\n", stderr=b"")
            return await size(box, "late") > 0

        await until(late, "the background job's file", probes.TIMEOUT_S)
        expect(await session.run("wait; echo waited"), stdout=b"waited\n")

    async def test_a_timeout_kills_all_of_it_and_closes_the_session(self, box: Sandbox) -> None:
        session = await box.session()
        await session.run(f"({beat('earlier')}) &")
        await started(box, "earlier")
        result = await session.run(
            f"echo early; (({beat('orphan')}) &); trap '' TERM; {beat('self')}", timeout_s=2.0
        )
        expect(result, timed_out=True, stdout=b"early\n")
        assert result.exit_code != 0, "a command killed by its time limit has exit code 0"
        assert session.closed, "the session is not closed"
        await stopped(box, "earlier", "orphan", "self", after="the time limit")
        with pytest.raises(SandboxError):
            await session.run("true")
        fresh = await (await box.session()).run("echo new")
        expect(fresh, stdout=b"new\n", stderr=b"")

    async def test_cancelling_kills_what_runs(self, box: Sandbox) -> None:
        session = await box.session()
        command = asyncio.ensure_future(session.run(f"(({beat('orphan')}) &); {beat('self')}"))
        await started(box, "orphan")
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        await stopped(box, "orphan", "self", after="cancelling")
        expect(await box.exec("echo alive"), stdout=b"alive\n")

    async def test_a_flood_of_output_is_cut_in_the_middle(self, box: Sandbox) -> None:
        session = await box.session()
        result = await session.run(
            "echo first; dd if=/dev/zero bs=65536 count=320 2>/dev/null; echo last",
            max_output_bytes=10_000,
        )
        assert result.truncated
        assert len(result.stdout) == 10_000
        assert result.stdout.startswith(b"first\n")
        assert result.stdout.endswith(b"\0last\n")
        expect(await session.run("echo next"), stdout=b"next\n")

    async def test_a_long_command_runs_whole(self, box: Sandbox) -> None:
        session = await box.session()
        body = "y" * 300_000
        result = await session.run(f"cat > big <<'END'\n{body}\nEND\nkept=before; (exit 3)")
        expect(result, exit_code=3)
        assert await size(box, "big") == 300_001
        await still_works(session)

    async def test_callers_wait_for_one_another(self, box: Sandbox) -> None:
        session = await box.session()
        results = await asyncio.gather(
            *(session.run(f"echo {n}; sleep 0.05; echo {n} >&2; (exit {n})") for n in range(5))
        )
        assert [r.exit_code for r in results] == [0, 1, 2, 3, 4]
        assert [r.stdout for r in results] == [b"%d\n" % n for n in range(5)]

    async def test_sessions_share_files_and_nothing_else(self, box: Sandbox) -> None:
        one, two = await box.session(), await box.session()
        await one.run('cd /; a=1; echo shared > "$OLDPWD/file"')
        result = await two.run("echo ${a-unset}; cat file")
        expect(result, stdout=b"unset\nshared\n")

    async def test_a_session_starts_with_its_own_env_and_folder(self, box: Sandbox) -> None:
        await box.exec("mkdir sub")
        session = await box.session(env={"KIT_VALUE": "a 'b'"}, cwd="sub")
        result = await session.run('echo "$KIT_VALUE"; pwd -P')
        assert result.stdout.decode() == f"a 'b'\n{box.workdir}/sub\n"

    async def test_closing_kills_what_the_session_has_started(self, box: Sandbox) -> None:
        session = await box.session()
        await session.run(f"(({beat('orphan')}) &)")
        await started(box, "orphan")
        await session.close()
        await session.close()
        assert session.closed, "the session is not closed"
        await stopped(box, "orphan", after="`close` of the session")
        with pytest.raises(SandboxError):
            await session.run("true")

    async def test_megabytes_come_through_a_session(self, box: Sandbox) -> None:
        session = await box.session()
        data = bytes(range(256)) * (2 * MIB // 256)
        await box.write("data", data)
        result = await session.run("cat data", max_output_bytes=3 * MIB)
        expect(result, stdout=data)
