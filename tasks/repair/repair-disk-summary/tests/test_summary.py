"""Feeds the script and reads what it prints."""

import subprocess


def summary(text: str) -> tuple[str, str, int]:
    done = subprocess.run(
        ["sh", "summary.sh"], input=text, capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout, done.stderr, done.returncode


def test_the_sample() -> None:
    text = "notes.txt 120\nholiday video.mp4 90210\n\nold.iso 8000\n"
    assert summary(text) == ("files 3\nbytes 98330\nlargest holiday video.mp4\n", "", 0)


def test_sizes_are_compared_as_numbers() -> None:
    assert summary("a 9\nb 10\n")[0] == "files 2\nbytes 19\nlargest b\n"


def test_the_first_of_equal_sizes_is_the_largest() -> None:
    assert summary("x 0\ny 0\n")[0] == "files 2\nbytes 0\nlargest x\n"
    assert summary("a 1\nb 7\nc 7\n")[0] == "files 3\nbytes 15\nlargest b\n"


def test_no_lines() -> None:
    assert summary("") == ("files 0\nbytes 0\nlargest -\n", "", 0)
    assert summary("\n\n")[0] == "files 0\nbytes 0\nlargest -\n"


def test_names_with_special_characters() -> None:
    assert summary("a*b $HOME 5\n-n 3\n")[0] == "files 2\nbytes 8\nlargest a*b $HOME\n"
    assert summary("tab\\t 5\n")[0] == "files 1\nbytes 5\nlargest tab\\t\n"


def test_large_sizes_are_exact() -> None:
    text = "a 4294967296\nb 9000000000\n"
    assert summary(text)[0] == "files 2\nbytes 13294967296\nlargest b\n"


def test_a_bad_line_is_refused() -> None:
    for line in ("video.mp4 12k", "name", "a -5", "a 1.5"):
        assert summary(f"ok 1\n{line}\n") == ("", f"bad line: {line}\n", 1), line
