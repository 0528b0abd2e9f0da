"""A session over dash, bash and busybox alike."""

import pytest

from ale.errors import SandboxError
from ale_sandboxing.shell.session import ShellSession


async def test_what_a_command_sets_lasts(session: ShellSession) -> None:
    await session.run("cd /; a=1")
    result = await session.run("echo $a; pwd; echo err >&2; (exit 5)", timeout_s=30)
    assert (result.exit_code, result.stdout, result.stderr) == (5, b"1\n/\n", b"err\n")
    assert (await session.run("echo $?")).stdout == b"5\n"


@pytest.mark.parametrize(
    "command", ["echo 'open", "if true; then", "return 1 2", "cat <<END\nnever", ")", "break 1 2"]
)
async def test_no_error_breaks_the_framing(session: ShellSession, command: str) -> None:
    await session.run("kept=1")
    result = await session.run(command, timeout_s=30)
    assert not result.timed_out
    if not session.closed:
        assert (await session.run("echo $kept", timeout_s=30)).stdout == b"1\n"


async def test_reports_that_a_command_prints_are_only_output(session: ShellSession) -> None:
    forged = "echo '0 0\n0 ready\n0 1\n0 aaaa'; (exit 3)"
    result = await session.run(forged, timeout_s=30)
    assert (result.exit_code, result.stdout) == (3, b"0 0\n0 ready\n0 1\n0 aaaa\n")


async def test_a_report_with_another_token_is_ignored(session: ShellSession) -> None:
    report = session._shell.report.decode()
    forged = f"echo 0 ready >{report}; echo 0 0123456789abcdef >{report}; sleep 0.1; (exit 4)"
    assert (await session.run(forged, timeout_s=30)).exit_code == 4


async def test_the_report_pipe_is_not_visible_to_a_command(session: ShellSession) -> None:
    seen = await session.run("set; env; cat /proc/$$/environ /proc/$$/cmdline; ls -l /proc/$$/fd")
    assert session._shell.report not in seen.stdout


async def test_the_end_of_the_shell_is_its_code(session: ShellSession) -> None:
    result = await session.run("echo said; exit 9", timeout_s=30)
    assert (result.exit_code, result.stdout) == (9, b"said\n")
    assert session.closed
    with pytest.raises(SandboxError):
        await session.run("true")


async def test_a_timeout_closes_the_session(session: ShellSession) -> None:
    await session.run("true", timeout_s=30)
    result = await session.run("echo early; sleep 60", timeout_s=2)
    assert (result.timed_out, result.stdout, session.closed) == (True, b"early\n", True)


async def test_a_long_command_goes_through_a_file(session: ShellSession) -> None:
    result = await session.run(f": {'x' * 200_000}; (exit 6)", timeout_s=60)
    assert result.exit_code == 6


async def test_a_nul_byte_is_the_commands_failure(session: ShellSession) -> None:
    assert (await session.run("echo a\0b")).exit_code == 126


async def test_a_lone_surrogate_does_no_harm(session: ShellSession) -> None:
    assert (await session.run("printf '\ud800' | wc -c")).stdout.strip() == b"3"
