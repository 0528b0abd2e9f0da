"""Print what was sold of each product: report.py FILE."""

import sys

amounts = {}
with open(sys.argv[1]) as file:
    next(file)
    for line in file:
        date, product, pieces, price = line.strip().split(",")
        amounts[product] = amounts.get(product, 0) + float(pieces) * float(price)

for product in sorted(amounts, key=amounts.get):
    print(product + "\t" + str(amounts[product]))
