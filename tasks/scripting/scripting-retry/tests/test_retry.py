"""Runs the script with commands that fail and work."""

import subprocess
import tempfile

# Counts its runs in a file, shows its arguments, works from the run given first.
FLAKY = 'echo run >> "$0"; n=$(grep -c run "$0"); printf "<%s>" "$@"; [ "$n" -ge "$1" ] || exit 7'


def retry(*arguments: str, stdin: str = "") -> tuple[str, str, int]:
    done = subprocess.run(
        ["sh", "retry.sh", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stdout, done.stderr, done.returncode


def flaky(times: str, *arguments: str) -> tuple[str, str, int]:
    with tempfile.NamedTemporaryFile() as file:
        return retry(times, "sh", "-c", FLAKY, file.name, *arguments)


def test_a_command_that_works_runs_once() -> None:
    assert retry("5", "echo", "hi") == ("hi\n", "", 0)


def test_it_ends_with_the_first_success() -> None:
    failed = "attempt 1 failed with 7\nattempt 2 failed with 7\n"
    assert flaky("9", "3") == ("<3><3><3>", failed, 0)


def test_it_gives_up_with_the_last_status() -> None:
    failed = "attempt 1 failed with 7\nattempt 2 failed with 7\n"
    assert flaky("2", "3") == ("<3><3>", failed, 7)


def test_arguments_arrive_unchanged() -> None:
    arguments = ("1", "a b", "", "*", "$HOME", "-n", "it's")
    assert flaky("1", *arguments)[0] == "<1><a b><><*><$HOME><-n><it's>"


def test_a_missing_command_is_tried_as_often() -> None:
    out, err, code = retry("2", "/no/such/command")
    assert (out, code) == ("", 127)
    assert err.count("failed with 127") == 2


def test_standard_input_is_empty() -> None:
    assert retry("1", "cat", stdin="text") == ("", "", 0)


def test_wrong_use_runs_nothing() -> None:
    for arguments in ((), ("3",), ("0", "echo"), ("-1", "echo"), ("x", "echo"), ("", "echo")):
        out, err, code = retry(*arguments)
        assert (out, code) == ("", 2), arguments
        assert err.startswith("usage:")
