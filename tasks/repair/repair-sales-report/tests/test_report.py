"""Runs the program as a user does."""

import subprocess
import sys
import tempfile
from pathlib import Path


def report(content: str | None) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sales.csv"
        if content is not None:
            file.write_text(content, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "report.py", str(file)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )


def test_a_simple_file() -> None:
    assert report("date,product,pieces,price\n2024-01-02,tea,3,2.50\n").stdout == "tea\t7.50\n"


def test_quotes_commas_empty_lines_and_another_order_of_columns() -> None:
    text = (
        'product,date,price,pieces\n"Tea, green",2024-01-02,2.10,3\nCoffee,2024-01-02,7.99,1\n\n'
        '"Cup ""XL""",2024-01-03,0.10,3\n"Tea, green",2024-01-04,2.10,2\n'
    )
    assert report(text).stdout == 'Tea, green\t10.50\nCoffee\t7.99\nCup "XL"\t0.30\n'


def test_a_field_may_have_two_lines() -> None:
    text = 'date,product,pieces,price\n2024-01-02,"a,\nb",1,1.00\n'
    assert report(text).stdout == "a,\nb\t1.00\n"


def test_equal_amounts_are_sorted_by_name() -> None:
    rows = [f"2024-01-02,{name},1,5.00" for name in ("pear", "apple", "fig")]
    text = "\n".join(["date,product,pieces,price", *rows, "2024-01-02,kiwi,2,5.00", ""])
    assert report(text).stdout == "kiwi\t10.00\napple\t5.00\nfig\t5.00\npear\t5.00\n"


def test_amounts_are_exact_to_the_cent() -> None:
    rows = ["2024-01-02,nail,1,0.145"] * 1000 + ["2024-01-02,screw,3,333333333333333.33"]
    text = "\n".join(["date,product,pieces,price", *rows, ""])
    assert report(text).stdout == "screw\t999999999999999.99\nnail\t145.00\n"


def test_no_sales_print_nothing() -> None:
    done = report("date,product,pieces,price\n")
    assert (done.stdout, done.returncode) == ("", 0)


def test_a_missing_file_is_an_error_with_status_2() -> None:
    done = report(None)
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr
