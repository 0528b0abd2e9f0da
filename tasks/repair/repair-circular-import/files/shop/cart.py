"""What a customer wants to buy."""

from shop.receipt import render

CURRENCY = "EUR"


class Cart:
    """Lines of (name, pieces, price of a piece in cents)."""

    def __init__(self):
        self.lines = []

    def add(self, name, pieces, cents):
        """Add a line."""
        self.lines.append((name, pieces, cents))

    def receipt(self):
        """The receipt as text, a line each, the total last; no line end after it."""
        return render(self)
