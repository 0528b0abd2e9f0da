"""command_exit_code and regex_in_stdout, with real commands."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ale.errors import GradingError
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Environment, ExecResult, Score
from ale_criteria_shell.commands import CommandExitCode, RegexInStdout
from ale_criteria_shell.files import FileContains
from ale_criteria_shell.matching import matches
from ale_criteria_shell.options import (
    CommandExitCodeOptions,
    FileContainsOptions,
    RegexInStdoutOptions,
)

Grade = Callable[..., Awaitable[Score]]


def exits(command: str, **options: Any) -> CommandExitCode:
    return CommandExitCode(CommandExitCodeOptions(command=command, **options))


def prints(command: str, pattern: str, **options: Any) -> RegexInStdout:
    return RegexInStdout(RegexInStdoutOptions(command=command, pattern=pattern, **options))


@pytest.mark.parametrize(
    ("command", "expected", "passes"),
    [
        ("true", 0, True),
        ("false", 0, False),
        ("exit 7", 7, True),
        ("exit 7", 0, False),
        ("no-such-program", 127, True),
        ("kill -TERM $$", 143, True),
        ("kill -KILL $PPID; sleep 1", 0, False),
    ],
)
async def test_the_exit_code_decides(
    grade: Grade, command: str, expected: int, passes: bool
) -> None:
    assert (await grade(exits(command, exit_code=expected))).passed is passes


async def test_a_failure_shows_the_code_and_both_outputs(grade: Grade) -> None:
    score = await grade(exits("echo so far; echo no luck >&2; exit 3"))
    assert score.detail == (
        "'echo so far; echo no luck >&2; exit 3': exit code 3, expected exit code 0\n"
        "stdout: so far\nstderr: no luck"
    )


async def test_a_missing_program_names_the_folders_that_were_searched(grade: Grade) -> None:
    assert "option env.PATH" in (await grade(exits("no-such-program"))).detail


async def test_a_command_that_hangs_fails_and_is_cleared_away(grade: Grade) -> None:
    score = await grade(exits("sleep 60", timeout_s=0.3))
    assert score.value == 0.0
    assert "did not end within 2.4 s" in score.detail


async def test_the_time_limit_is_one_of_the_processor(grade: Grade) -> None:
    assert (await grade(exits("sleep 2", timeout_s=1.0))).passed
    busy = "import time\nwhile time.process_time() < 3: pass"
    score = await grade(exits(f"python3 -c '{busy}'", timeout_s=1.0))
    assert (score.value, score.timed_out) == (0.0, True)
    assert "used more CPU time than it may" in score.detail


async def test_nothing_stays_in_the_temporary_folder(grade: Grade, sandbox: FolderSandbox) -> None:
    for command in ("pwd; echo $HOME >home", "echo $HOME >home; sleep 90", "kill -9 $PPID"):
        await grade(exits(command, timeout_s=0.5))
        home = Path((await sandbox.read("home")).decode().strip())
        assert home.name == "home"
        assert not home.parent.exists()


async def test_a_sandbox_that_makes_folders_makes_the_home(tmp_path: Path) -> None:
    class MakesFolders(FolderSandbox):
        @asynccontextmanager
        async def scratch_folder(self, name: str) -> AsyncIterator[str]:
            with tempfile.TemporaryDirectory(prefix=name, dir=tmp_path) as folder:
                yield folder

    sandbox = MakesFolders()
    look = f'test "$HOME" = "$(echo {tmp_path}/ale-grading-*)" && test -z "$(ls -A "$HOME")"'
    try:
        for command in (look, f'{look} && touch "$HOME/a" "$HOME/.b"', "kill -9 $PPID"):
            criterion = exits(command, exit_code=137 if "kill" in command else 0)
            score = await criterion.grade(builders.task(), builders.trajectory(), sandbox)
            assert score.passed, score.detail
            assert list(tmp_path.iterdir()) == []
    finally:
        await sandbox.close()


async def test_the_environment_is_clean_but_for_the_tasks_and_the_criterions(
    grade: Grade,
) -> None:
    task = builders.task(environment=Environment(env={"FROM_TASK": "1"}))
    expected = r"\AFROM_TASK HOME LANG MINE PATH PWD (SHLVL )?TMPDIR (_ )?\Z"
    names = "env | cut -d= -f1 | sort | tr '\\n' ' '"
    score = await grade(prints(names, expected, env={"MINE": "2"}), task)
    assert score.passed, score.detail


async def test_temporary_files_go_where_the_sandbox_keeps_them(
    grade: Grade, sandbox: FolderSandbox
) -> None:
    score = await grade(prints('echo "$HOME"; mktemp', r"\A(\S+)/ale-grading-\w+/home\n\1/tmp\."))
    assert score.passed, score.detail
    folder = Path((await sandbox.exec("echo $TMPDIR")).stdout.decode().strip())
    assert [path.name[:4] for path in folder.iterdir()] == ["tmp."]


async def test_home_is_an_empty_folder(grade: Grade) -> None:
    assert (await grade(exits('test -d "$HOME" && test -z "$(ls -A "$HOME")"'))).passed


async def test_a_missing_folder_fails_even_where_a_failure_is_expected(grade: Grade) -> None:
    score = await grade(exits("exit 125", exit_code=125, cwd="project"))
    assert not score.passed
    assert "the folder 'project' can't be entered" in score.detail


async def test_folder_and_stdin_are_as_asked_for(grade: Grade, sandbox: FolderSandbox) -> None:
    await sandbox.write("a b/x", b"")
    assert (
        await grade(exits('read it && test "$it" = yes -a -e x', cwd="a b", stdin="yes\n"))
    ).passed


async def test_hidden_files_are_there_for_the_command_alone(
    grade: Grade, sandbox: FolderSandbox, tmp_path: Path
) -> None:
    (tmp_path / "expected.txt").write_text("42\n")
    criterion = exits('ls -A >listing; cmp answer "$GRADING_FILES/expected.txt"', files=tmp_path)
    await sandbox.write("answer", b"42\n")
    assert (await grade(criterion)).passed
    assert (await sandbox.read("listing")) == b"answer\nlisting\n"
    assert sorted(path.name for path in Path(sandbox.workdir).iterdir()) == ["answer", "listing"]
    await sandbox.write("answer", b"41\n")
    assert not (await grade(criterion)).passed


async def test_a_single_hidden_file_is_given_by_its_own_path(grade: Grade, tmp_path: Path) -> None:
    (tmp_path / "check.sh").write_text("exit 5")
    criterion = exits('sh "$GRADING_FILES"', files=tmp_path / "check.sh", exit_code=5)
    assert (await grade(criterion)).passed


async def test_hidden_files_are_there_for_a_command_whose_output_is_searched(
    grade: Grade, tmp_path: Path
) -> None:
    (tmp_path / "list.sh").write_text("echo total 7")
    criterion = prints('sh "$GRADING_FILES/list.sh"', r"^total \d$", files=tmp_path)
    assert (await grade(criterion)).passed


class NoTmp(FolderSandbox):
    """A sandbox whose disk is full."""

    async def exec(self, command: Any, **arguments: Any) -> ExecResult:
        message = b"mkdir: cannot create directory: No space left on device"
        return ExecResult(exit_code=125, stdout=b"", stderr=message)


async def test_a_sandbox_that_cannot_start_the_command_is_an_error_and_not_a_zero() -> None:
    sandbox = NoTmp()
    with pytest.raises(GradingError, match="No space left on device"):
        await exits("exit 125", exit_code=125).grade(
            builders.task(), builders.trajectory(), sandbox
        )
    await sandbox.close()


async def test_a_command_cannot_pass_its_own_failure_off_as_the_sandboxs(grade: Grade) -> None:
    """All that the wrapper writes is in its command line; it is written before the command runs."""
    steal = "tr '\\0' '\\n' </proc/$PPID/cmdline >&2; exit 125"
    score = await grade(exits(steal))
    assert score.value == 0.0


@pytest.mark.parametrize(
    ("pattern", "passes"),
    [("^b+$", True), ("b{3}", False), ("(?i)^A$", True), ("a\nbb", True), ("bb", True)],
)
async def test_a_pattern_is_searched_line_by_line(grade: Grade, pattern: str, passes: bool) -> None:
    assert (await grade(prints("printf 'a\\nbb\\n'", pattern))).passed is passes


async def test_digits_are_those_of_ascii(grade: Grade) -> None:
    arabic = "printf '\\331\\244\\331\\242\\n'"
    assert not (await grade(prints(arabic, r"^\d+$"))).passed
    assert (await grade(prints(f"{arabic}; echo 42", r"^[\d]+$"))).contested is None
    assert (await grade(prints("printf 'caf\\303\\251 1'", r"^\w+ \d$"))).passed


async def test_different_matches_are_contested(grade: Grade) -> None:
    score = await grade(prints("seq 99", r"^4\d$"))
    assert (score.value, score.contested) == (1.0, 0.0)
    assert "whoever prints everything would pass" in score.detail
    assert (await grade(prints("echo 42; echo 42", r"^4\d$"))).contested is None
    assert not (await grade(prints("seq 9", r"^4\d$"))).passed


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("^42$", "'42' among all else"), (r"\A42\n\Z", ""), ("^h.llo$", ""), ("Print", "'Print'")],
)
def test_a_pattern_that_is_passed_by_printing_everything_says_so(pattern: str, says: str) -> None:
    found = prints("cat out", pattern).weakness(builders.task(goal="Print the answer."))
    assert found.startswith(says)
    assert bool(found) == bool(says)


async def test_only_stdout_is_searched(grade: Grade) -> None:
    score = await grade(prints("echo 42 >&2", "42"))
    assert score.value == 0.0
    assert score.detail.endswith(
        "no match of '42' in stdout, exit code 0\nstdout: (nothing)\nstderr: 42"
    )


async def test_the_exit_code_counts_only_where_it_is_asked_for(grade: Grade) -> None:
    assert (await grade(prints("echo 42; exit 1", "42"))).passed
    assert not (await grade(prints("echo 42; exit 1", "42", exit_code=0))).passed


async def test_a_text_made_to_keep_the_search_busy_fails_in_time(
    grade: Grade, sandbox: FolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is the agent's: if it broke the episode, this would be better than to fail."""
    monkeypatch.setitem(matches.__kwdefaults__, "timeout_s", 0.5)
    text, pattern = "a" * 60 + "b", "(a|aa)+$"
    await sandbox.write("answer", text.encode())
    in_file = FileContains(FileContainsOptions(path="answer", pattern=pattern))
    for criterion in (in_file, prints(f"echo {text}", pattern)):
        score = await grade(criterion)
        assert (score.value, score.timed_out) == (0.0, True)
        assert "took longer than 0.5 s, which counts as no match" in score.detail


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: prints("true", "("),
        lambda: exits(" "),
        lambda: exits("true", timeout_s=0),
        lambda: exits("true", exit_code=-1),
    ],
)
def test_wrong_options_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"pattern|command|timeout_s|exit_code"):
        wrong()
