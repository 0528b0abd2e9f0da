"""Probes of `Sandbox.exec`, each from a failure seen in a real system."""

import asyncio
import resource
from typing import ClassVar

import pytest

from ale.errors import UnsupportedError
from ale.protocols import Sandbox
from ale.testing.sandbox import probes
from ale.testing.sandbox._guard import time_limited
from ale.testing.sandbox.probes import (
    MIB,
    ODD_NAMES,
    beat,
    case,
    expect,
    keeps_beating,
    size,
    started,
    stopped,
)
from ale.testing.waiting import until


@time_limited
@pytest.mark.asyncio
class ExecProbes:
    long_command_s: ClassVar[float] = 2.0
    """How long `test_a_long_command_gives_its_true_exit_code` waits. A backend that talks over
    HTTP sets it above its client's timeouts."""

    async def test_the_exit_code_is_the_true_one(self, box: Sandbox) -> None:
        for command, code in (
            ("true", 0),
            ("false", 1),
            ("exit 7", 7),
            ("no-such-command-anywhere", 127),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
            ("exit 255", 255),
            ("sh -c 'kill -9 $$'; exit $?", 137),
            ("true; false", 1),
            ("false | true", 0),
            ("if", 2),
            ("", 0),
            ("# only a comment", 0),
        ):
            with case(command):
                result = await box.exec(command)
                # The code of a syntax error depends on the shell, but must not be 0.
                expected = result.exit_code if command == "if" and result.exit_code else code
                expect(result, exit_code=expected, timed_out=False)

    async def test_an_argument_vector_is_run_as_it_is(self, box: Sandbox) -> None:
        result = await box.exec(["printf", "%s|", "a b", "$HOME", "'", ""])
        expect(result, stdout=b"a b|$HOME|'||")
        expect(await box.exec(["false"]), exit_code=1)
        expect(await box.exec(["no-such-command-anywhere"]), exit_code=127)

    async def test_a_long_command_gives_its_true_exit_code(self, box: Sandbox) -> None:
        result = await box.exec(
            f"sleep {self.long_command_s}; exit 9",
            timeout_s=self.long_command_s + probes.TIMEOUT_S,
        )
        expect(result, exit_code=9)
        assert self.long_command_s <= result.duration_s < self.long_command_s + probes.TIMEOUT_S

    async def test_stdout_and_stderr_are_separate(self, box: Sandbox) -> None:
        result = await box.exec("echo out; echo err >&2; echo out2")
        expect(result, stdout=b"out\nout2\n", stderr=b"err\n")

    async def test_a_silent_command_is_silent(self, box: Sandbox) -> None:
        result = await box.exec("cd . && : && true")
        expect(result, exit_code=0, stdout=b"", stderr=b"")

    async def test_bytes_come_through_unchanged(self, box: Sandbox) -> None:
        result = await box.exec(r"printf '\377\000\376\303\050\r\n'; printf '\200' >&2")
        expect(result, stdout=b"\xff\x00\xfe\xc3\x28\r\n")
        expect(result, stderr=b"\x80")

    async def test_without_stdin_a_reader_finds_the_end(self, box: Sandbox) -> None:
        result = await box.exec("cat; echo end")
        expect(result, stdout=b"end\n", timed_out=False)

    async def test_ten_megabytes_of_stdin_arrive_whole(self, box: Sandbox) -> None:
        data = bytes(range(256)) * (10 * MIB // 256)
        result = await box.exec("cat", stdin=data, max_output_bytes=11 * MIB)
        expect(result, exit_code=0)
        assert not result.truncated
        expect(result, stdout=data)

    async def test_stdin_that_nobody_reads_does_no_harm(self, box: Sandbox) -> None:
        result = await box.exec("exit 4", stdin=b"x" * 10 * MIB)
        expect(result, exit_code=4, timed_out=False)

    async def test_a_flood_of_output_is_cut_in_the_middle_in_flat_memory(
        self, box: Sandbox
    ) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await box.exec(
            "echo first; dd if=/dev/zero bs=65536 count=1600 2>/dev/null; echo last; exit 5",
            max_output_bytes=MIB,
        )
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        expect(result, exit_code=5)
        assert result.truncated
        assert len(result.stdout) == MIB
        assert result.stdout.startswith(b"first\n")
        assert result.stdout.endswith(b"\0last\n")
        assert grown_mib < 50, f"100 MiB of output took {grown_mib:.0f} MiB of memory"

    async def test_output_of_just_the_limit_is_whole(self, box: Sandbox) -> None:
        whole = await box.exec("printf 12345; printf 67890 >&2", max_output_bytes=5)
        expect(whole, stdout=b"12345", stderr=b"67890", truncated=False)
        cut = await box.exec("printf 1234567890", max_output_bytes=4)
        expect(cut, stdout=b"1290", truncated=True)
        cut = await box.exec("printf 1234567890 >&2", max_output_bytes=4)
        expect(cut, stdout=b"", stderr=b"1290", truncated=True)

    async def test_a_child_that_keeps_the_output_open_causes_no_delay(self, box: Sandbox) -> None:
        result = await box.exec("sleep 60 & echo done; exit 6")
        expect(result, exit_code=6, stdout=b"done\n", timed_out=False)

    async def test_a_background_process_survives_its_command(self, box: Sandbox) -> None:
        await box.exec(f"({beat('beat')}) >/dev/null 2>&1 &")
        await started(box, "beat")
        await keeps_beating(box, "beat")

    async def test_a_timeout_kills_the_whole_tree(self, box: Sandbox) -> None:
        command = (
            f"({beat('child')}) & "
            f"(({beat('orphan')}) &) ; "
            f"if command -v setsid >/dev/null; then setsid sh -c '{beat('other')}' & fi; "
            f"trap '' TERM; {beat('self')}"
        )
        result = await box.exec(command, timeout_s=2.0)
        assert result.timed_out, "`timed_out` is not set after the time limit"
        assert result.exit_code != 0, "a command killed by its time limit has exit code 0"
        assert 1.9 <= result.duration_s < 2 + probes.TIMEOUT_S
        await stopped(box, "child", "orphan", "other", "self", after="the time limit")
        assert await size(box, "child") > 0, "the background process had not started"

    async def test_output_before_a_timeout_is_returned(self, box: Sandbox) -> None:
        result = await box.exec("echo early; sleep 60", timeout_s=2.0)
        expect(result, stdout=b"early\n", timed_out=True)

    async def test_after_a_timeout_output_is_the_next_commands_own(self, box: Sandbox) -> None:
        await box.exec("while :; do echo old; done", timeout_s=0.3, max_output_bytes=1000)
        result = await box.exec("echo new; echo newer >&2")
        expect(result, stdout=b"new\n", stderr=b"newer\n")

    async def test_a_timeout_spares_what_other_commands_have_started(self, box: Sandbox) -> None:
        await box.exec(f"({beat('server')}) >/dev/null 2>&1 &")
        await started(box, "server")
        await box.exec("sleep 60", timeout_s=0.3)
        await keeps_beating(box, "server")

    async def test_commands_run_in_parallel(self, box: Sandbox) -> None:
        """Each of six commands waits until all six have begun."""
        met = "until [ -e met0 -a -e met1 -a -e met2 -a -e met3 -a -e met4 -a -e met5 ]"
        met += "; do sleep 0.05; done"
        results = await asyncio.gather(
            *(
                box.exec(
                    f"echo {n}; touch met{n}; {met}; echo {n} >&2; exit {n}",
                    timeout_s=probes.TIMEOUT_S,
                )
                for n in range(6)
            )
        )
        late = [result for result in results if result.timed_out]
        assert not late, f"{len(late)} of six commands waited in vain for the others to begin"
        assert [result.exit_code for result in results] == [0, 1, 2, 3, 4, 5]
        assert [result.stdout for result in results] == [b"%d\n" % n for n in range(6)]
        assert [result.stderr for result in results] == [b"%d\n" % n for n in range(6)]

    async def test_cancelling_kills_the_tree(self, box: Sandbox) -> None:
        command = asyncio.ensure_future(box.exec(f"({beat('child')}) & {beat('self')}"))
        await started(box, "child")
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        await stopped(box, "child", "self", after="cancelling")
        expect(await box.exec("echo alive"), stdout=b"alive\n")

    async def test_env_is_added_for_one_command_only(self, box: Sandbox) -> None:
        value = "a b'c\"d\n$e"
        result = await box.exec('printf %s "$KIT_VALUE"', env={"KIT_VALUE": value})
        assert result.stdout.decode() == value
        expect(await box.exec('printf %s "${KIT_VALUE-unset}"'), stdout=b"unset")

    async def test_a_command_starts_in_the_workspace_or_the_given_folder(
        self, box: Sandbox
    ) -> None:
        await box.exec("mkdir -p 'sub/two words'")
        assert (await box.exec("pwd -P")).stdout.decode().rstrip("\n") == box.workdir
        inner = await box.exec("pwd -P", cwd="sub/two words")
        assert inner.stdout.decode() == f"{box.workdir}/sub/two words\n"
        expect(await box.exec("pwd -P", cwd="/"), stdout=b"/\n")

    async def test_a_missing_folder_fails_the_command_without_running_it(
        self, box: Sandbox
    ) -> None:
        result = await box.exec("echo ran", cwd="no/such/folder")
        assert result.exit_code != 0, "a missing folder gave exit code 0"
        assert b"ran" not in result.stdout, "the command ran without its folder"
        assert result.stderr, "stderr does not say what failed"

    async def test_another_user_is_used_or_refused(self, box: Sandbox) -> None:
        try:
            result = await box.exec("id -u", user="65534")
        except UnsupportedError:
            return
        expect(result, stdout=b"65534\n")

    async def test_odd_names_reach_the_command(self, box: Sandbox) -> None:
        for name in ODD_NAMES:
            with case(name):
                await box.write(name, b"content of it")
                result = await box.exec(["cat", "--", name])
                expect(result, stdout=b"content of it", stderr=b"")

    async def test_a_command_of_300_kilobytes_runs(self, box: Sandbox) -> None:
        body = "x" * 300_000
        result = await box.exec(f"cat > big <<'END'\n{body}\nEND\nexit 3")
        expect(result, exit_code=3)
        assert await box.read("big") == body.encode() + b"\n"

    async def test_a_background_writer_does_not_reach_a_later_command(self, box: Sandbox) -> None:
        await box.exec("(sleep 0.2; echo late; echo there > late) &")

        async def late() -> bool:
            result = await box.exec("sleep 0.05; echo mine")
            expect(result, stdout=b"mine\n")
            return await size(box, "late") > 0

        await until(late, "the late writer's file", probes.TIMEOUT_S)
