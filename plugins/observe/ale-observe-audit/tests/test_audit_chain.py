"""Whatever is done to one line is found and named; whatever a kill leaves is repaired."""

import itertools
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ale.errors import InputError, StoreError
from ale_observe_audit.chain import NAME, REPAIRED, START, Chain, Entry, entry_of
from ale_observe_audit.verifying import broken_links

EVENTS = ["run_started", "episode_stage", "episode_finished", "step_finished", "run_finished"]


def write(path: Path, n: int = 8) -> list[bytes]:
    """A file of `n` events; its lines."""
    chain = Chain(path, fsync=False, at=0.0)
    for number in range(n):
        chain.append(EVENTS[number % 5], float(number), episode=f'"é\n{number}', reward=0.5)
    chain.close()
    return path.read_bytes().splitlines(keepends=True)


def entries_of(data: bytes) -> list[Entry | None]:
    return [entry_of(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def found(data: bytes) -> list[tuple[int, str]]:
    """Problems by line, an incomplete last line among them."""
    lines = data.split(b"\n")
    problems = [*broken_links([entry_of(line + b"\n") for line in lines[:-1]])]
    return [*problems, (len(lines), "incomplete")] if lines[-1] else problems


def test_a_file_as_it_was_written_has_no_problem(tmp_path: Path) -> None:
    lines = write(tmp_path / NAME)
    assert found(b"".join(lines)) == []
    entries = entries_of(b"".join(lines))
    assert [entry and entry.seq for entry in entries] == list(range(1, 9))
    assert entries[0] is not None
    assert entries[0].previous == START


def test_every_change_of_a_byte_is_named_by_its_line(tmp_path: Path) -> None:
    """Every byte, each with another value; the byte is also removed, and doubled."""
    lines = write(tmp_path / NAME, 6)
    whole, rng = b"".join(lines), random.Random(0)
    for at in range(len(whole)):
        line = whole[:at].count(b"\n") + 1
        other = bytes([(whole[at] + rng.randrange(1, 256)) % 256])
        byte = whole[at : at + 1]
        for instead in (other, b"", byte * 2, b"\n" + byte):
            changed = whole[:at] + instead + whole[at + 1 :]
            if changed == whole:
                continue  # one of two equal bytes was removed and the other doubled
            named = {number for number, _ in found(changed)}
            # A second end of a line makes an empty one after it.
            assert named & {line, line + 1 if byte == b"\n" else line}, (at, instead)


def test_every_bit_counts(tmp_path: Path) -> None:
    lines = write(tmp_path / NAME, 3)
    whole = b"".join(lines)
    for at, bit in itertools.product(range(len(whole)), range(8)):
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        assert found(bytes(changed)), (at, bit)


def test_every_missing_line_but_the_last_is_named_by_its_number(tmp_path: Path) -> None:
    lines = write(tmp_path / NAME)
    for gone in range(len(lines) - 1):
        left = lines[:gone] + lines[gone + 1 :]
        message = f"missing before this line: number {gone + 1}"
        assert found(b"".join(left)) == [(gone + 1, message)]


def test_several_missing_lines_are_counted(tmp_path: Path) -> None:
    lines = write(tmp_path / NAME)
    assert found(b"".join(lines[:2] + lines[5:])) == [(3, "missing before this line: of 3 to 5, 3")]


def test_the_last_lines_can_be_removed_unseen(tmp_path: Path) -> None:
    """What a chain without a copy elsewhere can't show: verify compares the run for this."""
    lines = write(tmp_path / NAME)
    for n in range(len(lines)):
        assert found(b"".join(lines[:n])) == []


def test_every_two_lines_that_change_places_are_named(tmp_path: Path) -> None:
    lines = write(tmp_path / NAME)
    for one, two in itertools.combinations(range(len(lines)), 2):
        swapped = [*lines]
        swapped[one], swapped[two] = lines[two], lines[one]
        problems = found(b"".join(swapped))
        named = {number for number, text in problems if text.startswith("reordered")}
        assert named & {one + 1, two + 1}
        assert not [text for _, text in problems if text.startswith("missing")]


def test_every_line_that_stands_twice_is_named(tmp_path: Path) -> None:
    lines = write(tmp_path / NAME)
    for one in range(len(lines)):
        doubled = lines[: one + 1] + lines[one:]
        numbers = {number for number, _ in found(b"".join(doubled))}
        assert numbers & {one + 1, one + 2}


def test_a_line_with_a_right_hash_of_its_own_does_not_fit(tmp_path: Path) -> None:
    lines, others = write(tmp_path / "a"), write(tmp_path / "b")
    first = write(tmp_path / "c", 0)
    assert (lines, first) == (others, [])
    chain = Chain(tmp_path / "d", fsync=False, at=0.0)
    for number in range(3):
        chain.append("forged", float(number))
    chain.close()
    forged = (tmp_path / "d").read_bytes().splitlines(keepends=True)
    problems = found(b"".join([*lines[:2], forged[2], *lines[3:]]))
    replaced = "the line before it was replaced: it has another hash"
    assert problems == [(3, replaced), (4, replaced)]


def test_a_file_cut_at_any_byte_is_continued(tmp_path: Path) -> None:
    """At the next start all whole lines are there, and what was not whole is written down."""
    path = tmp_path / NAME
    lines = write(path, 3)
    whole = b"".join(lines)
    ends = list(itertools.accumulate(map(len, lines), initial=0))
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        chain = Chain(path, fsync=False, at=1.0)
        chain.append("resumed", 2.0)
        chain.close()
        data = path.read_bytes()
        assert found(data) == []
        entries = [entry for entry in entries_of(data) if entry is not None]
        kept = sum(end <= size for end in ends) - 1
        torn = size not in ends
        completed = size + 1 in ends  # only the newline was missing
        assert data.startswith(b"".join(lines[: kept + completed]))
        expected = [EVENTS[n % 5] for n in range(kept + completed)]
        assert [e.event for e in entries] == [*expected, *[REPAIRED] * torn, "resumed"]
        if torn:
            removed = 0 if completed else size - ends[kept]
            assert entries[-2].facts["removed_bytes"] == removed


WRITER = """
import sys
from pathlib import Path
from ale_observe_audit.chain import Chain

chain = Chain(Path(sys.argv[1]), fsync=False, at=0.0)
print("open", flush=True)
while True:
    chain.append("event", 0.0, text="x" * 5000)
"""


def test_a_writer_that_is_killed_leaves_a_chain(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    Chain(path, fsync=True, at=0.0).close()
    data = path.read_bytes()
    assert found(data) == []
    assert data.count(b"\n") > 20


def test_nothing_is_written_after_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / NAME
    whole = b"".join(write(path, 3))
    path.write_bytes(whole[:-10] + b"\n")
    with pytest.raises(InputError, match="ale audit verify"):
        Chain(path, fsync=False, at=0.0)
    assert path.read_bytes() == whole[:-10] + b"\n"


def test_a_full_disk_is_an_error_with_the_path_and_leaves_a_chain(tmp_path: Path) -> None:
    """A limit of the size of files is met in the middle of a line, as the end of a disk is."""
    path = tmp_path / NAME
    whole = b"".join(write(path, 3))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    chain = Chain(path, fsync=False, at=0.0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 50, before[1]))
    try:
        with pytest.raises(StoreError, match=r"audit.jsonl can't be written: File too large"):
            chain.append("event", 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == whole
    chain.append("event", 0.0)
    chain.close()
    assert found(path.read_bytes()) == []


def test_a_last_line_longer_than_one_read_is_found(tmp_path: Path) -> None:
    path = tmp_path / NAME
    chain = Chain(path, fsync=False, at=0.0)
    for _ in range(3):
        chain.append("event", 0.0, text="x" * 200_000)
    chain.close()
    path.write_bytes(path.read_bytes()[:-7])
    chain = Chain(path, fsync=False, at=0.0)
    chain.close()
    assert found(path.read_bytes()) == []
    assert [entry and entry.event for entry in entries_of(path.read_bytes())] == [
        "event", "event", REPAIRED
    ]  # fmt: skip
