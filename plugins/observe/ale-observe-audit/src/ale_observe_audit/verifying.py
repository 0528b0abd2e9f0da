"""Is an audit as it was written, and is the run as the audit says?"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import define, field

from ale.errors import InputError, Problem
from ale.runs import RunReader, holder
from ale.text import counted
from ale_observe_audit.chain import NAME, START, Entry, entry_of, lines_of
from ale_observe_audit.observer import EPISODES, FILES, config_sha256, file_sha256

Found = tuple[int, str]
"""Line of the file, first line 1, and what is wrong with it."""


def verify(run: Path, head: tuple[int, str] | None = None) -> list[str]:
    """What was verified, in lines for people.

    Args:
        head: number and hash of a line that has to be in the audit.

    Raises:
        InputError: with every problem; or there is no run, or no audit.
    """
    path = _audit_of(run)
    entries, problems = _read(path, running=holder(run) is not None)
    problems += [Problem(message=text, file=str(path), line=n) for n, text in broken_links(entries)]
    known = [entry for entry in entries if entry is not None]
    problems += _head_problems(path, known, head)
    stored = _Stored(run)
    for number, entry in enumerate(entries, 1):
        try:
            if entry is not None:
                stored.take(number, entry)
        except (KeyError, TypeError):
            message = f"not what the observer writes of {entry and entry.event}"
            problems.append(Problem(message=message, file=str(path), line=number))
    problems += stored.problems()
    if problems:
        raise InputError(problems)
    if not known:
        return [f"{path}: no events"]
    chain = f"{path}: {counted(len(known), 'line')}, each as it was written, none missing between"
    return [chain, *stored.notes(), f"head  {known[-1].seq}:{known[-1].sha256}"]


def head_of(run: Path) -> tuple[int, str]:
    """Number and hash of the last whole line.

    Raises:
        InputError: there is no run, no audit, or no whole line at its end.
    """
    path = _audit_of(run)
    last = entry = None
    for line in lines_of(path):
        if line.endswith(b"\n"):
            last = line
    if last is not None:
        entry = entry_of(last)
    if entry is None:
        raise InputError.of("the last line is damaged" if last else "no events", file=str(path))
    return entry.seq, entry.sha256


def _audit_of(run: Path) -> Path:
    RunReader(run)
    path = run / NAME
    if not path.exists():
        hint = "the config of a run that writes one has observers: [{type: audit}]"
        raise InputError.of("the run has no audit", file=str(path), hint=hint)
    return path


def _read(path: Path, *, running: bool) -> tuple[list[Entry | None], list[Problem]]:
    entries: list[Entry | None] = []
    for number, line in enumerate(lines_of(path), 1):
        if line.endswith(b"\n"):
            entries.append(entry_of(line))
        elif not running:
            message = "incomplete: the process was killed while it wrote, or the end was removed"
            hint = "a resume of the run repairs it"
            return entries, [Problem(message=message, file=str(path), line=number, hint=hint)]
    return entries, []


def broken_links(entries: Sequence[Entry | None]) -> Iterator[Found]:
    """Lines that were changed, are missing, or stand where they did not.

    Args:
        entries: in the order of the file; None is a line that is not as it was written.
    """
    ordered = _longest_ascent(entries)
    present = {entry.seq for entry in entries if entry is not None}
    expected, changed = 1, 0
    before: Entry | None = None
    for index, entry in enumerate(entries):
        if entry is None:
            yield index + 1, "changed: its text does not have its hash"
            changed += 1
        elif index not in ordered:
            yield index + 1, f"reordered: number {entry.seq} does not belong here"
        else:
            yield from _gap(index + 1, expected, entry.seq, present, changed)
            follows = START if entry.seq == 1 else before.sha256 if before else None
            if follows not in (None, entry.previous) and (entry.seq == 1 or expected == entry.seq):
                yield index + 1, "the line before it was replaced: it has another hash"
            expected, changed = entry.seq + 1, 0
        before = entry if index in ordered else None


def _gap(line: int, expected: int, seq: int, present: set[int], changed: int) -> Iterator[Found]:
    """The numbers before this line that stand nowhere; changed lines account for as many."""
    elsewhere = sum(expected <= number < seq for number in present) if seq > expected else 0
    gone = seq - expected - elsewhere - changed
    if gone > 0:
        which = f"number {expected}" if seq - expected == 1 else f"of {expected} to {seq - 1}"
        yield (
            line,
            f"missing before this line: {which}" + (f", {gone}" if seq - expected > 1 else ""),
        )


def _longest_ascent(entries: Sequence[Entry | None]) -> set[int]:
    """The indexes of the most lines whose numbers ascend; the others are out of order."""
    last: list[int] = []  # the lowest number that ends an ascent of each length
    ends: list[int] = []  # and its index
    links: dict[int, int | None] = {}
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        length = bisect_left(last, entry.seq)
        links[index] = ends[length - 1] if length else None
        last[length : length + 1] = [entry.seq]
        ends[length : length + 1] = [index]
    found = set()
    at = ends[-1] if ends else None
    while at is not None:
        found.add(at)
        at = links[at]
    return found


def _head_problems(
    path: Path, entries: Iterable[Entry], head: tuple[int, str] | None
) -> list[Problem]:
    if head is None:
        return []
    number, wanted = head
    of = {entry.seq: entry.sha256 for entry in entries}
    if number not in of:
        message = f"number {number} is not there: lines at the end were removed"
    elif of[number] != wanted:
        message = f"number {number} has the hash {of[number]}: the file was written again"
    else:
        return []
    return [Problem(message=message, file=str(path), expected=f"{number}:{wanted}")]


@define
class _Line:
    """An episode of `episodes.jsonl`, as the audit has it."""

    audit_line: int
    episode: str
    at: int
    bytes: int
    sha256: str


@define
class _Stored:
    """What the run has stored, by the audit. Facts of a damaged audit are not relied on."""

    run: Path
    _lines: list[_Line] = field(factory=list)
    _end: int | None = None
    """Size of the stored episodes, as far as the audit has them; None: it has none yet."""
    _config: str | None = None
    _files: dict[str, str | None] = field(factory=dict)
    _finished: bool = False
    _missed: list[str] = field(factory=list)
    _unseen: int = 0
    """Bytes of episodes that were stored while nobody wrote an audit."""

    def take(self, number: int, entry: Entry) -> None:
        """Read a line of the audit."""
        facts = entry.facts
        if entry.event == "run_started":
            self._start(facts)
        self._finished = entry.event == "run_finished"
        if entry.event == "episode_finished" and facts.get("stored"):
            stored = facts["stored"]
            if self._end is not None and stored["at"] > self._end:
                self._missed.append(f"bytes {self._end} to {stored['at']}")
            self._end = stored["at"] + stored["bytes"]
            self._lines.append(_Line(number, facts["episode"], **stored))

    def _start(self, facts: dict[str, Any]) -> None:
        """A start or a resume, which may have removed episodes."""
        begin = facts["episodes_bytes"]
        self._lines = [line for line in self._lines if line.at + line.bytes <= begin]
        self._unseen += max(0, begin - (self._end or 0))
        self._end = begin
        self._config, self._files = facts["config_sha256"], facts["files"]

    def problems(self) -> list[Problem]:
        """What the run has that the audit says otherwise."""
        path = self.run / EPISODES
        found = [_changed(path, f"{gap} are in no line of the audit") for gap in self._missed]
        found += [
            _changed(self.run / name, "not as it was when the run started")
            for name in FILES
            if name in self._files and self._files[name] != file_sha256(self.run / name)
        ]
        if self._config != config_sha256(self.run) and self._config is not None:
            found.append(_changed(self.run / "manifest.json", "the config is not as it was"))
        return [*found, *self._episode_problems(path), *self._end_problems(path)]

    def _episode_problems(self, path: Path) -> Iterator[Problem]:
        if not path.exists():
            if self._lines:
                n = counted(len(self._lines), "episode")
                yield _changed(path, f"the file is gone, with {n}")
            return
        with path.open("rb") as file:
            there = {sha256(line).hexdigest() for line in file}
            moved = []
            for line in self._lines:
                file.seek(line.at)
                if sha256(file.read(line.bytes)).hexdigest() == line.sha256:
                    continue
                if line.sha256 in there:
                    moved.append(line)
                    continue
                where = f"line {line.audit_line} of the audit"
                message = f"the episode {line.episode} is not as it was stored ({where})"
                yield _changed(path, message)
        if moved:
            # One removed line, or one of another length, moves all that follow.
            n, first = counted(len(moved), "episode"), moved[0]
            where = f"first {first.episode}, line {first.audit_line} of the audit"
            yield _changed(path, f"{n} as stored, but not where they were ({where})")

    def _end_problems(self, path: Path) -> Iterator[Problem]:
        ended = (RunReader(self.run).manifest.get("outcome") or {}).get("outcome")
        if ended is not None and not self._finished and holder(self.run) is None:
            message = f"no end of the run, which was {ended}: lines at the end were removed"
            hint = "or the observer was dropped during the run, which events.jsonl says"
            yield Problem(message=message, file=str(self.run / NAME), hint=hint)
        size = path.stat().st_size if path.exists() else 0
        if self._finished and self._end is not None and size > self._end:
            yield _changed(path, f"bytes {self._end} to {size} are in no line of the audit")

    def notes(self) -> list[str]:
        """What was compared, and what could not be."""
        found = [
            f"{counted(len(self._lines), 'episode')} as stored, config and tasks as at the start"
        ]
        if self._unseen:
            found.append(f"{self._unseen} bytes of episodes were stored while no audit was written")
        if not self._finished:
            found.append("the run has not ended, or was killed: what came last may be missing")
        return found


def _changed(path: Path, message: str) -> Problem:
    return Problem(message=message, file=str(path))
