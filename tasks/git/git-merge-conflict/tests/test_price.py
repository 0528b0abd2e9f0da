"""Runs what is committed on main, in a process of its own."""

import json
import subprocess
import sys


def total(*arguments: object) -> object:
    show = ["git", "-C", "shop", "show", "refs/heads/main:price.py"]
    source = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert "<<<<<<<" not in source, "conflict markers are left"
    assert ">>>>>>>" not in source, "conflict markers are left"
    code = f"{source}\nimport json\nprint(json.dumps(total(*{arguments!r})))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    return json.loads(done.stdout)


def test_few_pieces_are_rounded_and_not_discounted() -> None:
    assert total(0.333, 9) == 3.0
    assert total(1.1, 3) == 3.3


def test_ten_pieces_are_discounted() -> None:
    assert total(2.0, 10) == 18.0


def test_the_discount_comes_before_the_rounding() -> None:
    assert total(0.333, 10) == 3.0
    assert total(1.237, 11) == 12.25
