"""Imports the package in every order, in processes of their own."""

import itertools
import subprocess
import sys

NAMES = ["shop.cart.Cart", "shop.cart.CURRENCY", "shop.pricing.total", "shop.receipt.render"]


def python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 0, done.stderr[-300:]
    return done.stdout


def test_the_program_prints_the_receipt() -> None:
    expected = "2 x pen: 3.00 EUR\n1 x ink: 4.25 EUR\ntotal: 7.25 EUR\n"
    assert python("-m", "shop") == expected


def test_the_names_can_be_imported_in_any_order() -> None:
    for pair in itertools.permutations(NAMES, 2):
        lines = ["from {} import {}".format(*name.rsplit(".", 1)) for name in pair]
        python("-c", "\n".join(lines))


def test_the_parts_behave_as_before() -> None:
    code = """
import shop.receipt, shop.pricing
from shop.cart import CURRENCY, Cart
cart = Cart()
cart.add("nib", 3, 5)
print(shop.pricing.total(cart), CURRENCY, repr(shop.receipt.render(cart)), repr(cart.receipt()))
"""
    text = r"'3 x nib: 0.15 EUR\ntotal: 0.15 EUR'"
    assert python("-c", code) == f"15 EUR {text} {text}\n"
