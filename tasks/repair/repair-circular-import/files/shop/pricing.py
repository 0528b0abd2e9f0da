"""What a cart costs."""

from shop.cart import Cart


def total(cart: Cart):
    """Sum of all lines, in cents."""
    return sum(pieces * cents for _, pieces, cents in cart.lines)
