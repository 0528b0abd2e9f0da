"""A cart as text."""

from shop.cart import CURRENCY
from shop.pricing import total


def money(cents):
    """Cents as text with the currency."""
    return f"{cents // 100}.{cents % 100:02} {CURRENCY}"


def render(cart):
    """One line per line of the cart, and the total."""
    lines = [f"{pieces} x {name}: {money(pieces * cents)}" for name, pieces, cents in cart.lines]
    return "\n".join([*lines, f"total: {money(total(cart))}"])
