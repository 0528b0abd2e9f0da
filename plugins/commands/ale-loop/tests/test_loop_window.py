"""Hours of the day, over midnight and where clocks change."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ale_loop.window import Window


def contains(window: str, zone: str, utc: str) -> bool:
    at = datetime.fromisoformat(utc).replace(tzinfo=UTC).timestamp()
    return Window.parse(window, ZoneInfo(zone)).contains(at)


@pytest.mark.parametrize(
    ("window", "zone", "utc", "inside"),
    [
        ("02:00-06:00", "UTC", "2026-11-23T01:59:59", False),
        ("02:00-06:00", "UTC", "2026-11-23T02:00:00", True),
        ("02:00-06:00", "UTC", "2026-11-23T06:00:00", False),
        ("22:30-06:00", "UTC", "2026-11-23T23:59:59", True),
        ("22:30-06:00", "UTC", "2026-11-24T00:00:00", True),
        ("22:30-06:00", "UTC", "2026-11-24T12:00:00", False),
        ("02:00-06:00", "Asia/Tokyo", "2026-11-23T18:00:00", True),
        # On 2026-03-29 clocks in Berlin go from 02:00 to 03:00, at 01:00 UTC.
        ("02:00-06:00", "Europe/Berlin", "2026-03-29T00:59:59", False),
        ("02:00-06:00", "Europe/Berlin", "2026-03-29T01:00:00", True),
        ("02:00-06:00", "Europe/Berlin", "2026-03-29T03:59:59", True),
        ("02:00-06:00", "Europe/Berlin", "2026-03-29T04:00:00", False),
    ],
)
def test_a_moment_lies_in_a_window(window: str, zone: str, utc: str, inside: bool) -> None:
    assert contains(window, zone, utc) is inside
