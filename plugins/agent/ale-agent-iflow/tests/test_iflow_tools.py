"""Each tool, and what a model is told when it gets one wrong."""

import json

import pytest

from ale.agents import BadCallError
from ale.testing.agent import answer, call, shell_call
from ale.types import ToolCall
from ale_agent_iflow.result import cut_middle
from ale_agent_iflow.tools import TOOLS, check

FINISH = call("finish", summary="all done")

# -- shell


async def test_the_shell_retains_folder_and_variables(play):
    played = await play(
        shell_call("mkdir sub && cd sub && export X=7"),
        shell_call("echo $X; basename $PWD"),
        FINISH,
    )
    assert played.observations[1].content == "7\nsub\n[exit code 0]"


async def test_a_background_job_lasts_from_call_to_call(play):
    played = await play(
        shell_call("sleep 60 & echo started"), shell_call("jobs -r | wc -l; kill %1"), FINISH
    )
    assert played.observations[0].content == "started\n[exit code 0]"
    assert played.observations[1].content.split()[0] == "1"


async def test_stderr_and_the_exit_code_are_shown_separately(play):
    played = await play(shell_call("echo out; echo err >&2; (exit 3)"), FINISH)
    seen = played.observations[0]
    assert seen.content == "out\n[stderr]\nerr\n[exit code 3]"
    assert (seen.exit_code, seen.error) == (3, "exit code 3")


async def test_a_command_without_output_gives_its_exit_code(play):
    played = await play(shell_call("true"), FINISH)
    assert played.observations[0].content == "[exit code 0]"


async def test_bytes_that_are_not_utf_8_are_shown_as_escapes(play):
    played = await play(shell_call(r"printf 'a\xff\xfeb'"), FINISH)
    assert played.observations[0].content == "a\\xff\\xfeb\n[exit code 0]"


async def test_a_progress_bar_is_shown_in_its_last_state(play):
    bar = "for i in $(seq 1 500); do printf '\\r%s%% done' $i; done; echo; printf 'a\\r\\n'"
    played = await play(shell_call(bar), shell_call(f"({bar}) >&2"), FINISH)
    assert played.observations[0].content == "500% done\na\r\n[exit code 0]"
    assert played.observations[1].content == "[stderr]\n500% done\na\r\n[exit code 0]"


async def test_the_home_folder_is_the_one_of_commands(play):
    played = await play(
        call("write_file", path="~/x", content="one"),
        shell_call('cat "$HOME/x"; ls -d ./"~"'),
        call("edit_file", path="~/x", old_text="one", new_text="two"),
        call("read_file", path="~/x"),
        call("write_file", path="~nobody/x", content=""),
        FINISH,
    )
    assert played.observations[1].content.startswith("one\n[stderr]\n"), "a folder named ~"
    assert played.observations[3].content == "two"
    assert played.observations[4].error == "~nobody/x: ~nobody is no folder here; write its path"


async def test_long_output_is_cut_in_the_middle_and_the_loss_is_counted(play):
    played = await play(
        shell_call("echo first; head -c 5000 /dev/zero | tr '\\0' x; echo; echo last"),
        FINISH,
        max_output_bytes=400,
    )
    seen = played.observations[0]
    assert seen.truncated
    assert seen.content.startswith("first\nxxx")
    assert seen.content.endswith("xxx\nlast\n[exit code 0]")
    assert "[4612 bytes left out]" in seen.content  # 6 + 5000 + 1 + 5 - 400


async def test_output_that_the_sandbox_cut_is_said_to_lack_at_least_so_much(play):
    played = await play(shell_call("head -c 3000000 /dev/zero | tr '\\0' x"), FINISH)
    assert "[at least 1040385 bytes left out]" in played.observations[0].content


async def test_a_timeout_costs_the_shell_and_the_next_call_gets_a_new_one(play):
    played = await play(
        shell_call("X=7; sleep 30"), shell_call("echo X=$X"), FINISH, tool_timeout_s=3.0
    )
    slow, after = played.observations[:2]
    assert slow.timed_out
    assert slow.error == "timed out after 3 s"
    assert "the shell ended with it" in slow.content
    assert after.content.startswith("[the earlier shell has ended; this is a new one, with ")
    assert after.content.endswith("]\nX=\n[exit code 0]")


async def test_exit_ends_the_shell_and_the_observation_says_so(play):
    played = await play(shell_call("exit 3"), shell_call("echo on"), shell_call("echo on"), FINISH)
    assert played.observations[0].content == "[exit code 3; the shell has ended]"
    assert "this is a new one" in played.observations[1].content
    assert played.observations[2].content == "on\n[exit code 0]"


async def test_a_shell_that_died_between_two_calls_does_not_break_the_episode(play):
    played = await play(
        shell_call("(sleep 0.1; kill -9 $$) & true"),
        shell_call("sleep 0.5"),
        shell_call("echo on"),
        FINISH,
    )
    assert played.stop.reason == "finished"
    assert played.observations[2].content.endswith("on\n[exit code 0]")


# -- files


async def test_a_file_is_written_with_its_folders_and_read_back(play):
    played = await play(
        call("write_file", path="a/b/new.txt", content="grüß\ndich\n"),
        call("read_file", path="a/b/new.txt"),
        FINISH,
    )
    assert played.observations[0].content == "[wrote 12 bytes to a/b/new.txt]"
    assert played.observations[1].content == "grüß\ndich\n"
    assert (played.folder / "a/b/new.txt").read_bytes() == "grüß\ndich\n".encode()


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({"start_line": 2, "end_line": 3}, "[lines 2-3 of 4]\nb\nc"),
        ({"start_line": 3}, "[lines 3-4 of 4]\nc\nd"),
        ({"end_line": 1}, "[lines 1-1 of 4]\na"),
        ({"start_line": 4, "end_line": 99}, "[lines 4-4 of 4]\nd"),
        ({"start_line": 5}, "[error: the file has 4 lines; line 5 is past its end]"),
        ({"start_line": 3, "end_line": 2}, "[error: end_line 2 is before start_line 3]"),
        ({"start_line": None, "end_line": None}, "a\nb\nc\nd\n"),
    ],
)
async def test_a_range_of_lines_is_read(play, wanted, shown):
    played = await play(
        call("write_file", path="f", content="a\nb\nc\nd\n"),
        call("read_file", path="f", **wanted),
        FINISH,
    )
    assert played.observations[1].content == shown


async def test_a_long_file_is_cut_and_an_empty_one_is_called_empty(play):
    played = await play(
        call("write_file", path="long", content="x" * 1000),
        call("read_file", path="long"),
        call("write_file", path="empty", content=""),
        call("read_file", path="empty"),
        FINISH,
        max_output_bytes=256,
    )
    assert "[744 bytes left out]" in played.observations[1].content
    assert played.observations[1].truncated
    assert played.observations[3].content == "[the file is empty]"


async def test_a_huge_file_is_refused_with_a_way_out(play):
    played = await play(shell_call("truncate -s 9M huge"), call("read_file", path="huge"), FINISH)
    assert played.observations[1].error == (
        "huge is larger than 8 MiB; use the shell (sed -n, head)"
    )


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("none", "none: No such file or directory"),
        (".", ".: Is a directory"),
        ("file/below", "file/below: Not a directory"),
        ("n" * 300, f"{'n' * 300}: File name too long"),
    ],
)
async def test_a_path_that_can_not_be_read_is_an_observation(play, path, error):
    played = await play(
        call("write_file", path="file", content=""), call("read_file", path=path), FINISH
    )
    assert played.observations[1].error == error
    assert played.stop.reason == "finished"


async def test_one_exact_passage_is_replaced_and_other_bytes_stay(play, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/f").write_bytes(b"one\n\xfftwo\nthree\n")
    played = await play(call("edit_file", path="f", old_text="two\n", new_text="2\n"), FINISH)
    assert played.observations[0].content == "[replaced 1 passage in f, line 2]"
    assert (tmp_path / "work/f").read_bytes() == b"one\n\xff2\nthree\n"


MORE = "include more of the surrounding text"


@pytest.mark.parametrize(
    ("before", "old", "error"),
    [
        ("abc", "x", "is not found in f; read the file again and copy the passage exactly"),
        ("a\nb\na\n", "a", f"is found 2 times in f, at lines 1, 3; {MORE}"),
        ("aaa", "aa", f"is found 2 times in f, at lines 1, 1; {MORE}"),
        ("a\r\nb", "a\nb", "is not found in f: its lines end in \\r\\n there"),
        (" b = 1", "\tb", "is not found in f: with other whitespace around it, it is in line 1"),
        ("abc", "", "is empty; to write a whole file, use write_file"),
        ("abc", "new", "and new_text are equal; nothing would change"),
    ],
)
async def test_an_edit_that_is_not_exact_changes_nothing_and_says_why(play, before, old, error):
    played = await play(
        call("write_file", path="f", content=before),
        call("edit_file", path="f", old_text=old, new_text="new"),
        FINISH,
    )
    assert played.observations[1].error == f"old_text {error}"
    assert (played.folder / "f").read_bytes() == before.encode()


async def test_a_passage_found_everywhere_is_not_counted_to_the_end(play):
    played = await play(
        call("write_file", path="f", content="a" * 5000),
        call("edit_file", path="f", old_text="a", new_text="b"),
        FINISH,
    )
    assert "found at least 1000 times" in played.observations[1].error


# -- finish


async def test_finish_ends_the_episode_with_its_summary(play):
    played = await play(FINISH)
    assert (played.stop.reason, played.stop.detail) == ("finished", "all done")
    assert played.observations[0].content == "all done"


async def test_calls_after_finish_in_one_answer_are_not_run(play):
    played = await play(
        answer(
            "",
            ("shell", '{"command": "touch before"}'),
            ("finish", '{"summary": "done"}'),
            ("shell", '{"command": "touch after"}'),
        )
    )
    assert [o.error for o in played.observations] == [None, None, "not run: finished"]
    assert (played.folder / "before").exists()
    assert not (played.folder / "after").exists()


# -- bad calls


THE_TOOLS = "The tools are shell, read_file, write_file, edit_file, finish"
SHELL = "Signature: shell(command: string)"
READ = "Signature: read_file(path: string, start_line?: integer, end_line?: integer)"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("shel", "{}", f"unknown tool 'shel'. Did you mean shell(command: string)? {THE_TOOLS}"),
        ("zzz", "{}", f"unknown tool 'zzz'. {THE_TOOLS}"),
        ("", "{}", f"unknown tool ''. {THE_TOOLS}"),
        ("shell", "", f"missing argument 'command'. {SHELL}"),
        ("shell", "[1]", f"the arguments must be a JSON object, not array. {SHELL}"),
        ("shell", '{"command": 3}', f"command must be of type string, not integer. {SHELL}"),
        ("shell", '{"command": null}', f"command must be of type string, not null. {SHELL}"),
        ("shell", '{"cmd": 1}', f"missing argument 'command'; unknown argument 'cmd'. {SHELL}"),
        ("shell", r'{"command": "a\u0000"}', f"command holds a NUL character. {SHELL}"),
        (
            "shell",
            r'{"command": "\ud800"}',
            f"command holds half of a surrogate pair, which is not text. {SHELL}",
        ),
        (
            "read_file",
            '{"path": "f", "start_line": true}',
            f"start_line must be of type integer, not boolean. {READ}",
        ),
        (
            "read_file",
            '{"path": "f", "start_line": 0}',
            f"start_line must be at least 1, not 0. {READ}",
        ),
    ],
)
async def test_a_bad_call_is_an_observation_that_says_what_is_right(play, name, arguments, error):
    played = await play(answer("", (name, arguments)), FINISH)
    bad = played.observations[0]
    assert bad.error == error
    assert bad.content == f"[error: {error}]"
    assert played.stop.reason == "finished"


@pytest.mark.parametrize(
    "arguments",
    ['{"command": "ls"', "ls", '{"command": NaN}', '{"command": "a", "command": "b"}', "9" * 5000],
)
async def test_what_is_not_json_is_answered_with_the_signature(play, arguments):
    played = await play(answer("", ("shell", arguments)), FINISH)
    assert played.observations[0].error.startswith("the arguments are not valid JSON")
    assert played.observations[0].error.endswith("Signature: shell(command: string)")


def test_arguments_nested_without_end_are_refused():
    bomb = '{"command": ' + "[" * 100_000
    with pytest.raises(BadCallError, match="nested too deeply"):
        check(ToolCall(id="", name="shell", arguments=bomb))


async def test_arguments_cut_off_at_the_token_limit_are_called_that(play):
    cut = answer("", ("write_file", '{"path": "f", "content": "lo'), finish_reason="length")
    played = await play(cut, FINISH)
    assert "cut off at the token limit" in played.observations[0].content


# -- specifications


def test_every_specification_is_a_strict_schema_of_an_object():
    for tool in TOOLS:
        schema = tool.spec.parameters
        assert json.loads(json.dumps(schema)) == schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])


def test_the_schema_of_read_file_is_this():
    spec = next(tool.spec for tool in TOOLS if tool.name == "read_file")
    assert spec.parameters["required"] == ["path"]
    assert spec.parameters["properties"]["start_line"] == {
        "type": "integer",
        "description": "First line, from 1.",
        "minimum": 1,
    }


# -- cutting


def test_text_of_just_the_allowed_length_is_not_cut():
    assert cut_middle("x" * 10, 10) == ("x" * 10, False)


def test_a_cut_never_falls_inside_a_character():
    text = "ä" * 100
    for limit in range(20, 30):
        shown, cut = cut_middle(text, limit)
        assert cut
        head, note, tail = shown.split("\n")
        assert set(head) | set(tail) == {"ä"}
        assert note == f"[{200 - 2 * len(head) - 2 * len(tail)} bytes left out]"
