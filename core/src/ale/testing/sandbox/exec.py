"""Probes of `Sandbox.exec`, each from a fault seen in a real system."""

import asyncio
import resource
import time
from typing import ClassVar

import pytest

from ale.errors import UnsupportedError
from ale.protocols import Sandbox
from ale.testing.sandbox._probes import (
    MIB,
    ODD_NAMES,
    PATIENCE_S,
    beat,
    beating,
    keeps_beating,
    size,
    started,
    until,
)


@pytest.mark.asyncio
class ExecProbes:
    long_command_s: ClassVar[float] = 2.0
    """How long `test_a_long_command_gives_its_true_exit_code` waits. A backend that talks over
    HTTP sets it above its client's timeouts."""

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            ("true", 0),
            ("false", 1),
            ("exit 7", 7),
            ("exit 255", 255),
            ("no-such-command-anywhere", 127),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
            ("sh -c 'kill -9 $$'; exit $?", 137),
            ("true; false", 1),
            ("false | true", 0),
            ("if", 2),
            ("", 0),
            ("# only a comment", 0),
        ],
    )
    async def test_the_exit_code_is_the_true_one(
        self, box: Sandbox, command: str, code: int
    ) -> None:
        result = await box.exec(command, timeout_s=PATIENCE_S)
        # The shell is free to choose how it says "syntax error", but not to call it success.
        expected = result.exit_code if command == "if" and result.exit_code else code
        assert (result.exit_code, result.timed_out) == (expected, False)

    async def test_an_argument_vector_is_run_as_it_is(self, box: Sandbox) -> None:
        result = await box.exec(["printf", "%s|", "a b", "$HOME", "'", ""])
        assert result.stdout == b"a b|$HOME|'||"
        assert (await box.exec(["false"])).exit_code == 1
        assert (await box.exec(["no-such-command-anywhere"])).exit_code == 127

    async def test_a_long_command_gives_its_true_exit_code(self, box: Sandbox) -> None:
        result = await box.exec(f"sleep {self.long_command_s}; exit 9")
        assert result.exit_code == 9
        assert self.long_command_s <= result.duration_s < self.long_command_s + PATIENCE_S

    async def test_stdout_and_stderr_are_apart(self, box: Sandbox) -> None:
        result = await box.exec("echo out; echo err >&2; echo out2")
        assert (result.stdout, result.stderr) == (b"out\nout2\n", b"err\n")

    async def test_a_silent_command_is_silent(self, box: Sandbox) -> None:
        result = await box.exec("cd . && : && true")
        assert (result.exit_code, result.stdout, result.stderr) == (0, b"", b"")

    async def test_bytes_come_through_unchanged(self, box: Sandbox) -> None:
        result = await box.exec(r"printf '\377\000\376\303\050\r\n'; printf '\200' >&2")
        assert result.stdout == b"\xff\x00\xfe\xc3\x28\r\n"
        assert result.stderr == b"\x80"

    async def test_without_stdin_a_reader_finds_the_end(self, box: Sandbox) -> None:
        result = await box.exec("cat; echo end", timeout_s=PATIENCE_S)
        assert (result.stdout, result.timed_out) == (b"end\n", False)

    async def test_ten_megabytes_of_stdin_arrive_whole(self, box: Sandbox) -> None:
        data = bytes(range(256)) * (10 * MIB // 256)
        result = await box.exec("cat", stdin=data, max_output_bytes=11 * MIB)
        assert result.exit_code == 0
        assert not result.truncated
        assert result.stdout == data

    async def test_stdin_that_nobody_reads_does_no_harm(self, box: Sandbox) -> None:
        result = await box.exec("exit 4", stdin=b"x" * 10 * MIB, timeout_s=PATIENCE_S)
        assert (result.exit_code, result.timed_out) == (4, False)

    async def test_a_flood_of_output_is_cut_in_the_middle_in_flat_memory(
        self, box: Sandbox
    ) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await box.exec(
            "echo first; dd if=/dev/zero bs=65536 count=1600 2>/dev/null; echo last; exit 5",
            max_output_bytes=MIB,
        )
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert result.exit_code == 5
        assert result.truncated
        assert len(result.stdout) == MIB
        assert result.stdout.startswith(b"first\n")
        assert result.stdout.endswith(b"\0last\n")
        assert grown_mib < 50, f"100 MiB of output took {grown_mib:.0f} MiB of memory"

    async def test_output_of_just_the_limit_is_whole(self, box: Sandbox) -> None:
        whole = await box.exec("printf 12345; printf 67890 >&2", max_output_bytes=5)
        assert (whole.stdout, whole.stderr, whole.truncated) == (b"12345", b"67890", False)
        cut = await box.exec("printf 1234567890", max_output_bytes=4)
        assert (cut.stdout, cut.truncated) == (b"1290", True)

    async def test_a_child_that_keeps_the_output_open_holds_nothing_up(self, box: Sandbox) -> None:
        begun = time.monotonic()
        result = await box.exec("sleep 60 & echo done; exit 6", timeout_s=PATIENCE_S)
        assert (result.exit_code, result.stdout, result.timed_out) == (6, b"done\n", False)
        assert time.monotonic() - begun < PATIENCE_S

    async def test_a_background_process_goes_on_after_its_command(self, box: Sandbox) -> None:
        await box.exec(f"({beat('beat')}) >/dev/null 2>&1 &", timeout_s=PATIENCE_S)
        await started(box, "beat")
        await keeps_beating(box, "beat")

    async def test_a_timeout_kills_the_whole_tree(self, box: Sandbox) -> None:
        command = (
            f"({beat('child')}) & "
            f"(({beat('orphan')}) &) ; "
            f"if command -v setsid >/dev/null; then setsid sh -c '{beat('other')}' & fi; "
            f"trap '' TERM; {beat('self')}"
        )
        result = await box.exec(command, timeout_s=1.0)
        assert result.timed_out
        assert result.exit_code != 0
        assert 0.9 <= result.duration_s < 1 + PATIENCE_S
        assert await beating(box, "child", "orphan", "other", "self") == []
        assert await size(box, "child") > 0

    async def test_what_was_written_before_a_timeout_is_kept(self, box: Sandbox) -> None:
        result = await box.exec("echo early; sleep 60", timeout_s=0.5)
        assert (result.stdout, result.timed_out) == (b"early\n", True)

    async def test_after_a_timeout_output_is_the_next_commands_own(self, box: Sandbox) -> None:
        await box.exec("while :; do echo old; done", timeout_s=0.3, max_output_bytes=1000)
        result = await box.exec("echo new; echo newer >&2")
        assert (result.stdout, result.stderr) == (b"new\n", b"newer\n")

    async def test_a_timeout_spares_what_other_commands_have_started(self, box: Sandbox) -> None:
        await box.exec(f"({beat('server')}) >/dev/null 2>&1 &")
        await started(box, "server")
        await box.exec("sleep 60", timeout_s=0.3)
        await keeps_beating(box, "server")

    async def test_commands_run_side_by_side(self, box: Sandbox) -> None:
        begun = time.monotonic()
        results = await asyncio.gather(
            *(box.exec(f"echo {n}; sleep 0.5; echo {n} >&2; exit {n}") for n in range(6))
        )
        assert [result.exit_code for result in results] == [0, 1, 2, 3, 4, 5]
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(6)]
        assert [result.stderr for result in results] == [b"%d\n" % n for n in range(6)]
        assert time.monotonic() - begun < 2.5  # one after the other they take 3

    async def test_cancelling_kills_the_tree(self, box: Sandbox) -> None:
        command = asyncio.ensure_future(box.exec(f"({beat('child')}) & {beat('self')}"))
        await started(box, "child")
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        assert await beating(box, "child", "self") == []
        assert (await box.exec("echo alive")).stdout == b"alive\n"

    async def test_env_is_added_for_one_command_only(self, box: Sandbox) -> None:
        value = "a b'c\"d\n$e"
        result = await box.exec('printf %s "$KIT_VALUE"', env={"KIT_VALUE": value})
        assert result.stdout.decode() == value
        assert (await box.exec('printf %s "${KIT_VALUE-unset}"')).stdout == b"unset"

    async def test_a_command_starts_in_the_workspace_or_where_it_is_told(
        self, box: Sandbox
    ) -> None:
        await box.exec("mkdir -p 'sub/two words'")
        assert (await box.exec("pwd -P")).stdout.decode().rstrip("\n") == box.workdir
        inner = await box.exec("pwd -P", cwd="sub/two words")
        assert inner.stdout.decode() == f"{box.workdir}/sub/two words\n"
        assert (await box.exec("pwd -P", cwd="/")).stdout == b"/\n"

    async def test_a_missing_folder_fails_the_command_without_running_it(
        self, box: Sandbox
    ) -> None:
        result = await box.exec("echo ran", cwd="no/such/folder")
        assert result.exit_code != 0
        assert b"ran" not in result.stdout
        assert result.stderr

    async def test_another_user_is_real_or_refused(self, box: Sandbox) -> None:
        try:
            result = await box.exec("id -u", user="65534")
        except UnsupportedError:
            return
        assert result.stdout == b"65534\n"

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_odd_names_reach_the_command(self, box: Sandbox, name: str) -> None:
        await box.write(name, b"content of it")
        result = await box.exec(["cat", "--", name])
        assert (result.stdout, result.stderr) == (b"content of it", b"")

    async def test_a_command_of_300_kilobytes_runs(self, box: Sandbox) -> None:
        body = "x" * 300_000
        result = await box.exec(f"cat > big <<'END'\n{body}\nEND\nexit 3")
        assert result.exit_code == 3
        assert await box.read("big") == body.encode() + b"\n"

    async def test_a_background_writer_does_not_reach_a_later_command(self, box: Sandbox) -> None:
        await box.exec("(sleep 0.2; echo late; echo there > late) &", timeout_s=PATIENCE_S)

        async def late() -> bool:
            result = await box.exec("sleep 0.05; echo mine")
            assert result.stdout == b"mine\n"
            return await size(box, "late") > 0

        await until(late, "the late writer's file")
