"""The table as it must be."""

import csv
from pathlib import Path

EXPECTED = [
    ["country", "customers", "orders", "total"],
    ["JP", "2", "1", "1000.00"],
    ["CH", "2", "3", "47.10"],
    ["unknown", "0", "1", "7.50"],
    ["IT", "1", "0", "0.00"],
    ["NZ", "1", "0", "0.00"],
]


def test_every_country_has_its_row() -> None:
    with Path("totals.csv").open(newline="") as file:
        assert list(csv.reader(file)) == EXPECTED
