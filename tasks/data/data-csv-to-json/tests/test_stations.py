"""The array as it must be, value by value and type by type."""

import json
from pathlib import Path


def row(*values: object) -> dict[str, object]:
    keys = ("id", "name", "latitude", "longitude", "height_m", "active", "notes")
    return dict(zip(keys, values, strict=True))


EXPECTED = [
    row(17, "Zürich, Affoltern", 47.4275, 8.5179, 444, True, None),
    row(4, "Jungfraujoch", 46.5474, 7.9853, 3571, True, '"Top of Europe"'),
    row(102, "Old Mill", -0.5, None, 12, False, "closed in 2019,\nmoved to the school"),
    row(8, None, 46.0, 7.0, None, True, "no"),
]


def read() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(Path("stations.json").read_text(encoding="utf-8"))
    return rows


def test_every_value_is_right() -> None:
    assert read() == EXPECTED


def test_true_is_not_one() -> None:
    assert [type(station["active"]) for station in read()] == [bool] * 4
    assert [type(station["id"]) for station in read()] == [int] * 4
