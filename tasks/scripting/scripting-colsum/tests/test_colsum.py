"""Runs the script on files of its own."""

import subprocess
import tempfile
from pathlib import Path

STOCK = "item\tpieces\ton order\nbolt\t120\t40\nnut (M3)\t-5\t\nwasher\t300\t7\n"


def run(*arguments: str) -> tuple[str, str, int]:
    done = subprocess.run(
        ["sh", "colsum.sh", *arguments], capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout.strip(), done.stderr, done.returncode


def colsum(column: str, content: str = STOCK) -> tuple[str, str, int]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "my table.tsv"
        file.write_text(content)
        return run(column, str(file))


def test_a_column_is_added_up() -> None:
    assert colsum("pieces") == ("415", "", 0)


def test_names_with_spaces_and_empty_cells() -> None:
    assert colsum("on order") == ("47", "", 0)


def test_no_rows_are_zero() -> None:
    assert colsum("b", "a\tb\n") == ("0", "", 0)


def test_large_sums_are_not_rounded() -> None:
    assert colsum("n", "n\n" + "1000000007\n" * 3000) == ("3000000021000", "", 0)


def test_names_are_compared_whole_and_literally() -> None:
    table = "a.b\taxb\ta\n1\t20\t300\n"
    assert [colsum(name, table)[0] for name in ("a.b", "axb", "a")] == ["1", "20", "300"]
    assert colsum("b", table) == ("", "no column b\n", 1)


def test_a_missing_column_is_an_error() -> None:
    assert colsum("price") == ("", "no column price\n", 1)


def test_the_number_of_arguments_is_checked() -> None:
    for arguments in ((), ("pieces",), ("pieces", "a", "b")):
        out, err, code = run(*arguments)
        assert (out, code) == ("", 2)
        assert err.startswith("usage:")
