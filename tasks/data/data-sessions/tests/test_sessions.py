"""Finds the sessions anew, another way, and compares."""

import csv
import hashlib
from itertools import groupby
from pathlib import Path

INPUT = "8580a9d904c6e5b6428c021503c19b0925e0b6863a3af02bd87d93e6a30c6aed"


def expected() -> list[str]:
    with Path("events.csv").open(newline="") as file:
        events = sorted((r["user"], int(r["time"]), r["page"]) for r in csv.DictReader(file))
    rows = []
    for user, visits in groupby(events, key=lambda event: event[0]):
        times = [(time, page) for _, time, page in visits]
        cuts = [i for i in range(1, len(times)) if times[i][0] - times[i - 1][0] > 1800]
        for first, last in zip([0, *cuts], [*cuts, len(times)], strict=True):
            part = times[first:last]
            pages = len({page for _, page in part})
            rows.append((part[0][0], user, f"{part[-1][0]},{len(part)},{pages}"))
    return [f"{user},{start},{rest}" for start, user, rest in sorted(rows)]


def test_the_sessions_are_found() -> None:
    assert hashlib.sha256(Path("events.csv").read_bytes()).hexdigest() == INPUT, "input changed"
    lines = Path("sessions.csv").read_text().splitlines()
    assert lines[0] == "user,start,end,events,pages"
    assert lines[1:] == expected()


def test_a_gap_of_1800_seconds_does_not_end_a_session() -> None:
    lines = Path("sessions.csv").read_text().splitlines()
    assert [line for line in lines if line.startswith("edge,")] == [
        "edge,1700300000,1700301800,2,1",
        "edge,1700303601,1700303601,1,1",
    ]
