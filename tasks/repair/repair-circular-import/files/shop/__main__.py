"""Print the receipt of a small order."""

from shop.cart import Cart

cart = Cart()
cart.add("pen", 2, 150)
cart.add("ink", 1, 425)
print(cart.receipt())
