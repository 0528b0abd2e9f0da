"""Counts anew from the log, which must be as it was given."""

import hashlib
import json
from collections import Counter
from pathlib import Path

INPUT = "9423b2c7a3946b5258bb2320df84534c936ea3fd87f4c7622ed8d105d78346fe"


def requests() -> list[tuple[str, str, int, int]]:
    """Path, status, size and time of every request."""
    data = Path("access.log").read_bytes()
    assert hashlib.sha256(data).hexdigest() == INPUT, "access.log was changed"
    found = []
    for line in data.decode().splitlines():
        if not line.startswith("10.0."):
            continue
        request, answer = line.split('"')[1:]
        status, size, time = answer.split()
        path = request.split()[1].split("?")[0]
        found.append((path, status, 0 if size == "-" else int(size), int(time)))
    return found


def summary() -> dict[str, object]:
    read: dict[str, object] = json.loads(Path("summary.json").read_text())
    return read


def test_requests_and_statuses_are_counted() -> None:
    assert summary()["requests"] == len(requests()) == 2000
    assert summary()["by_status"] == Counter(status for _, status, _, _ in requests())


def test_bytes_are_added_up() -> None:
    assert summary()["bytes"] == sum(size for _, _, size, _ in requests())


def test_the_slowest_path_is_named() -> None:
    assert summary()["slowest"] == max(requests(), key=lambda request: request[3])[0]


def test_the_most_wanted_paths_are_ranked() -> None:
    counts = Counter(path for path, _, _, _ in requests())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
    assert summary()["top_paths"] == [list(item) for item in ranked]


def test_the_95th_percentile_is_a_time_that_occurs() -> None:
    times = sorted(time for _, _, _, time in requests())
    assert summary()["p95_ms"] == times[1899]
