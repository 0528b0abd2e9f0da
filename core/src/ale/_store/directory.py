"""A run's directory: create, lock, append to and read it.

``manifest.json`` describes the run; ``tasks.jsonl``, ``episodes.jsonl``, ``events.jsonl`` and a
stream's ``groups.jsonl`` grow by whole lines; ``credits/<step>.jsonl`` is written atomically when a
step is complete, and can be computed again from the episodes; ``checkpoints/`` belongs to the
trainer. ``notes.jsonl`` is written by people, whether the run runs or not.
"""

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import msgspec

from ale._store.checkpoints import Checkpoints
from ale._store.codec import cannot_read, encode, indented, unreadable
from ale._store.groups import FILE as GROUPS
from ale._store.groups import (
    Change,
    GroupEvent,
    GroupKey,
    Groups,
    forget_batches,
    read_groups,
)
from ale._store.index import Episodes, Index, StoredEpisode
from ale._store.lines import SCHEMA, Appender, EventLines, Lines, OnDamage
from ale._store.lock import holder, in_use, lock
from ale._store.notes import Notes, read_notes
from ale._store.redact import Redactor
from ale._store.scores import FOLDER, OF_FEEDBACK, ScoreIndex, of_step, read_scores
from ale.errors import InputError, Problem, StoreError
from ale.files import open_file, replacing, restrict, store_errors, write_whole
from ale.intervals import Rate
from ale.protocols import LOGS
from ale.strict import nearest
from ale.types import CreditedEpisode, Episode, ScoredEpisode, Split, Task

_DISCARD = "discard_after"
"""Key of the outcome: size in bytes to which a resume truncates ``episodes.jsonl``."""
EARLIER_S = "earlier_seconds"
"""Key of a resumed run's manifest until it ends: wall-clock time of its earlier processes."""
VALIDATION = "validation.json"
"""File that `ale validate` writes into the folder of its runs."""
_WITH_DIGIT = re.compile(r"[A-Za-z]*[0-9][A-Za-z0-9]*")
_ALIKE = 0.9
"""Similarity of the numbers of two names from which one may be a misspelling of the other."""
_SAYS_PAUSED = ("run_started", "run_resumed", "steered")
_EPISODES, _EVENTS = "episodes.jsonl", "events.jsonl"
_TASKS: Mapping[Split, str] = {"train": "tasks.jsonl", "evaluation": "evaluation_tasks.jsonl"}


class _Regraded(msgspec.Struct):
    """A line of `ale regrade`."""

    episode: str
    new: float | None = None
    problem: str | None = None


class RunReader:
    """A stored run, read only."""

    def __init__(self, path: str | os.PathLike[str], on_damage: OnDamage | None = None) -> None:
        """Open a run.

        Args:
            path: the directory.
            on_damage: gets the error of each damaged line of the tasks, the episodes, their credit
                and the events, each time that it is left out. Without it, the error is raised.

        Raises:
            InputError: it is not a run directory, or of a schema this version can't read.
        """
        self.path = path = Path(path)
        """The directory."""
        self.manifest = _read_manifest(path)
        """``manifest.json``: at least ``run_id``, ``config`` and ``n_tasks``."""
        self._on_damage = on_damage
        self.tasks = Lines(path / _TASKS["train"], Task, on_damage)
        self.evaluation_tasks = Lines(path / _TASKS["evaluation"], Task, on_damage)
        self.event_log = EventLines(path / _EVENTS, on_damage)
        self.episodes = Episodes(path / _EPISODES, Episode, on_damage)
        """Iterable any number of times; each pass reads from disk, one episode at a time. Of
        several lines of one episode, the last counts."""
        self._scores = ScoreIndex(path)

    def __repr__(self) -> str:
        return f"RunReader({str(self.path)!r})"

    @property
    def directory(self) -> Path:
        """The directory, absolute."""
        return self.path.absolute()

    @property
    def regraded(self) -> tuple[Path, Mapping[str, float | None]] | None:
        """The newest scores of `ale regrade`: their file, and the new reward by episode.

        None before the first. An episode that could not be graded again is left out.

        Raises:
            InputError: the file is damaged.
        """
        found = sorted(self.path.glob("regraded/*/episodes.jsonl"))
        if not found:
            return None
        try:
            rows = msgspec.json.Decoder(_Regraded).decode_lines(found[-1].read_bytes())
        except msgspec.MsgspecError as error:
            raise unreadable(found[-1], None, error) from None
        return found[-1], {row.episode: row.new for row in rows if row.problem is None}

    @property
    def success(self) -> Rate | None:
        """Share of the graded training episodes with reward 1; None if none is graded.

        Episodes that an expert guided are left out.
        """
        return Rate.of(self.index().training_attempts().values())

    @property
    def state(self) -> str:
        """``running``, how the run ended, or ``interrupted``.

        The process of an interrupted run is gone and did not say how it ended.
        """
        pid, ended = holder(self.path), (self.manifest.get("outcome") or {}).get("outcome")
        if pid is None:
            return ended or "interrupted"
        # The run itself says how it ends before its observers report it.
        return (pid == str(os.getpid()) and ended) or "running"

    @property
    def paused(self) -> bool:
        """Does the run, which is running, start no further episode, as `ale steer` asked for?"""
        if self.state != "running":
            return False
        said = [each for each in self.events() if each["event"] in _SAYS_PAUSED]
        return bool(said and said[-1].get("paused"))

    def index(self) -> Index:
        """Scan the episodes for their keys, rewards and offsets, without decoding them whole."""
        stream = self.manifest["config"].get("run", {}).get("schedule") == "stream"
        index = Index(Groups(read_groups(self.path)) if stream else None)
        lines = Lines(self.path / _EPISODES, StoredEpisode, self._on_damage)
        for offset, head in lines.with_offsets():
            index.add(head, offset)
        return index

    def missing(self, index: Index) -> int:
        """Number of episodes that the manifest counted when the run ended, and the file lacks.

        Args:
            index: of this run.
        """
        ended = self.manifest.get("outcome") or {}
        now = index.totals()
        lacks = (ended.get(name, 0) - now[name] for name in ("n_graded", "n_broken"))
        return int(max(0, sum(lacks)))

    def credits(self, step: int | None = None) -> Iterator[CreditedEpisode]:
        """The credited episodes, step by step, or those of one step."""
        pattern = "*.jsonl" if step is None else f"{step:05d}.jsonl"
        for path in sorted((self.path / "credits").glob(pattern)):
            yield from Lines(path, CreditedEpisode, self._on_damage)

    def step_scores(
        self, step: int | None = None, *, regraded: bool = True
    ) -> Iterator[ScoredEpisode]:
        """The scores of chunks, oldest first; of several about one chunk, the last counts.

        Args:
            step: without those of the episodes that other steps learned from.
            regraded: with those of `ale regrade`, from which the run itself does not learn.
        """
        return read_scores(self.path, step, regraded=regraded)

    def scores_of(self, episode: Episode) -> Sequence[ScoredEpisode]:
        """The lines of `step_scores` about one episode."""
        return self._scores.of(episode)

    @property
    def notes(self) -> Notes:
        """Notes of people on the episodes, as written in `ale view`; read anew each time.

        Raises:
            InputError: a line of ``notes.jsonl`` is damaged, and not only incomplete at the end.
        """
        return read_notes(self.path)

    def events(self) -> Iterator[dict[str, Any]]:
        """The event log: each entry has ``event``, ``at`` (seconds since the epoch) and more."""
        yield from self.event_log


class RunDirectory:
    """The directory of a running run, locked against other writers."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._redactor = redactor
        self._lock = lock(path)
        _discard_episodes(path)
        self._appenders: dict[str, Appender] = {}
        """By file; each of the other files is made with its first line."""
        for name in (_EPISODES, _EVENTS):
            self._appender(name)
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.reader = RunReader(path)
        self.index = self.reader.index()
        self.groups = self.index.stream or Groups()
        """The record of what a stream has done with its groups; empty for another run."""
        self._stored_before = (path / _EPISODES).stat().st_size
        manifest = self.reader.manifest
        ended = manifest.get("outcome") or {}
        self.earlier_s: float = ended.get("seconds", manifest.get(EARLIER_S, 0.0))
        """Wall-clock time of the run's earlier processes, as far as they said how they ended."""
        self.was_complete = ended.get("outcome") == "completed"
        """The run was complete before it was opened."""

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any], redactor: Redactor) -> "RunDirectory":
        """Create a new one, or make one of a folder that has nothing but `LOGS`.

        Raises:
            StoreError: it exists, or can't be created.
        """
        written = _pretty({"schema": SCHEMA, **manifest}, redactor)
        if path.is_dir() and {each.name for each in path.glob("[!.]*")} == {LOGS}:
            restrict(path)
            write_whole(path / "manifest.json", written, private=True)
            return cls(path, redactor)
        # Renamed once it has a manifest: without one it could not be resumed.
        try:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            with replacing(path, private=True) as partial:
                partial.mkdir(mode=0o700)
                (partial / "manifest.json").write_bytes(written)
                restrict(partial / "manifest.json")
        except OSError as error:
            if (path / "manifest.json").exists():
                raise _just_created(path) from None
            raise StoreError(f"{path} can't be created: {error.strerror}") from error
        return cls(path, redactor)

    @classmethod
    def resume(cls, path: Path, redactor: Redactor) -> "RunDirectory":
        """Open an existing one; an incomplete last line of a file is removed.

        Raises:
            InputError: it is not a run directory.
            StoreError: a live process is writing to it.
        """
        _read_manifest(path)
        return cls(path, redactor)

    def retry_broken(self) -> None:
        """Let the run sample its broken episodes again; their steps are credited again."""
        for step in self.index.forget_broken():
            self._credits_path(step).unlink(missing_ok=True)

    def add_task(self, task: Task, split: Split = "train") -> None:
        """Store a task as it was read."""
        self._appender(_TASKS[split]).append(task)

    def add_episode(self, episode: Episode) -> None:
        """Store an episode, which is done from here on."""
        offset = self._appender(_EPISODES).append(episode)
        self.index.add(episode, offset)

    def graded(self, step: int) -> Iterator[Episode]:
        """A step's graded training episodes, read one by one, by task, start and rollout."""
        return map(self.reader.episodes.at, self.index.offsets(step))

    def add_groups(self, event: Change, step: int, groups: Sequence[GroupKey]) -> None:
        """Store what a stream has done with some groups, before it acts on it.

        Args:
            step: how many steps the policy has learned from.

        Raises:
            StoreError: it can't be written.
        """
        line = GroupEvent(event=event, step=step, groups=tuple(groups))
        self._appender(GROUPS).append(line)
        self.groups.add(line)

    def add_event(self, name: str, at: float, **facts: Any) -> None:
        """Append to the event log; `at` in seconds since the epoch."""
        self._appender(_EVENTS).append({"event": name, "at": at, **facts})

    def add_scores(self, scored: ScoredEpisode, step: int | None = None) -> None:
        """Store scores of an episode's chunks.

        Args:
            step: the step that learns from the episode; None for feedback from outside.
        """
        name = OF_FEEDBACK if step is None else of_step(step)
        if name not in self._appenders:
            with store_errors(self.path / FOLDER):
                (self.path / FOLDER).mkdir(mode=0o700, exist_ok=True)
        self._appender(name).append(scored)

    def _appender(self, name: str) -> Appender:
        if name not in self._appenders:
            self._appenders[name] = Appender(self.path / name, self._redactor)
        return self._appenders[name]

    def has_credits(self, step: int) -> bool:
        """Whether this step's credits are stored."""
        return self._credits_path(step).exists()

    @contextmanager
    def writing_credits(self, step: int) -> Iterator[Callable[[CreditedEpisode], object]]:
        """Write a step's credits atomically; the block gets a function that writes one row.

        Raises:
            StoreError: they can't be written (a full disk); none are stored then.
        """
        target = self._credits_path(step)
        with (
            store_errors(target),
            replacing(target, private=True) as partial,
            partial.open("wb") as file,
        ):
            yield lambda row: file.write(self._redactor.scrub_json(encode(row)) + b"\n")

    def _credits_path(self, step: int) -> Path:
        return self.path / "credits" / f"{step:05d}.jsonl"

    def begin(self) -> None:
        """Remove how an earlier process ended, which would be wrong if this one were killed."""
        manifest = _read_manifest(self.path)
        if manifest.get("outcome"):
            manifest |= {"outcome": None, EARLIER_S: self.earlier_s}
            write_whole(
                self.path / "manifest.json", _pretty(manifest, self._redactor), private=True
            )

    def set_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config in the manifest: how the run is executed has changed."""
        manifest = {**_read_manifest(self.path), "config": config}
        write_whole(self.path / "manifest.json", _pretty(manifest, self._redactor), private=True)

    def set_outcome(
        self, outcome: Mapping[str, Any], *, discard: bool = False, **facts: Any
    ) -> None:
        """Write to the manifest how the run ended.

        Args:
            discard: a resume removes the episodes that were stored since the directory was opened.
            facts: of the manifest that were not known at the start, such as ``n_tasks``.
        """
        if discard:
            outcome = {**outcome, _DISCARD: self._stored_before}
        manifest = {**_read_manifest(self.path), **facts, "outcome": outcome}
        manifest.pop(EARLIER_S, None)
        write_whole(self.path / "manifest.json", _pretty(manifest, self._redactor), private=True)

    def close(self) -> None:
        """Close the files and release the lock. May be called again."""
        for appender in self._appenders.values():
            appender.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _just_created(path: Path) -> StoreError:
    """The error for a directory that was not there when its run was checked."""
    pid = holder(path)
    if pid is not None:
        return in_use(path, pid)
    return StoreError(f"{path} holds a run, which another process has created meanwhile")


def _discard_episodes(path: Path) -> None:
    """Remove the episodes after which a run was stopped early, and the credits of their steps."""
    manifest = _read_manifest(path)
    outcome = manifest.get("outcome") or {}
    if _DISCARD not in outcome:
        return
    file, end = path / _EPISODES, outcome[_DISCARD]
    lines = Lines(file, StoredEpisode).with_offsets()
    gone = {GroupKey(e.step, e.task_id, e.start) for offset, e in lines if offset >= end}
    learned = Checkpoints(path / "checkpoints").newest()
    for step in {group.step for group in gone} | forget_batches(path, gone, learned):
        (path / "credits" / f"{step:05d}.jsonl").unlink(missing_ok=True)
    with store_errors(file):
        os.truncate(file, end)
    # Last: after a crash before this, the same is done once more, and nothing was added since.
    rest = {name: value for name, value in outcome.items() if name != _DISCARD}
    write_whole(path / "manifest.json", indented({**manifest, "outcome": rest}), private=True)


def _pretty(value: Mapping[str, Any], redactor: Redactor) -> bytes:
    return indented(json.loads(redactor.scrub_json(encode(value))))


class _Part(TypedDict):
    type: str


class _Config(TypedDict):
    chunker: NotRequired[_Part]
    sandbox: NotRequired[_Part]
    llm: NotRequired[_Part]
    agent: NotRequired[_Part]
    credit: NotRequired[_Part]
    trainer: NotRequired[_Part]
    run: NotRequired[dict[str, Any]]


class _Outcome(TypedDict):
    outcome: str
    seconds: float


class _Manifest(TypedDict):
    """The part of a manifest that readers rely on."""

    run_id: str
    config: _Config
    n_tasks: int
    outcome: NotRequired[_Outcome | None]


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        with open_file(file) as opened:
            manifest = msgspec.json.decode(opened.read(), type=dict[str, Any])
        schema = manifest.get("schema")
        if schema != SCHEMA:
            message = f"schema {schema}; this version of ale reads {SCHEMA}"
            raise InputError.of(message, file=str(file), path="schema")
        msgspec.convert(manifest, _Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError([_not_a_run(path)]) from None
    except OSError as error:
        raise cannot_read(file, error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(file, None, error) from None
    return manifest


def created(run: Path) -> tuple[str, str]:
    """When a run was created, as its manifest says, and its name."""
    try:
        with open_file(run / "manifest.json") as file:
            manifest = json.load(file)
        return str(manifest["created"]), run.name
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "", run.name


def _not_a_run(path: Path) -> Problem:
    if not path.is_dir():
        if path.exists():
            return Problem(message="is a file, not the directory of a run", file=str(path))
        hint = _moved(path) or _nearest_beside(path) or "ale status lists the runs in ./runs"
        return Problem(message="no such directory", file=str(path), hint=hint)
    inside = [p.parent for p in path.glob("*/manifest.json")]
    if inside:
        hint = f"the folder contains runs; the latest is {max(inside, key=created)}"
        if (path / VALIDATION).exists():
            names = ", ".join(sorted(each.name for each in inside))
            hint = f"it is a validation, which `ale validate` shows; its runs: {names}"
    else:
        hint = _nearest_beside(path) or "the folder contains no runs"
    return Problem(
        message="not a run directory (no manifest.json)",
        file=str(path),
        expected="the directory of a run, such as runs/20260101-120000-3f2a-quickstart",
        hint=hint,
    )


def _moved(path: Path) -> str | None:
    """A hint with the runs of this name elsewhere: they may have been moved there."""
    places = (path.parent, path.parent / "runs", Path("runs"))
    patterns = [f"{below}{escape(path.name)}/manifest.json" for below in ("", "*/", "*/*/")]
    found = [file.parent for place in places for each in patterns for file in place.glob(each)]
    return f"did you mean '{found[0]}'?" if found else None


def _nearest_beside(path: Path) -> str | None:
    beside = [each.parent.name for each in path.parent.glob("*/manifest.json")]
    below = ["latest", *(each.parent.name for each in path.parent.glob("runs/*/manifest.json"))]
    return nearest_run(path.name, beside) or nearest_run(path.name, below)


def nearest_run(name: str, names: Iterable[str]) -> str | None:
    """A hint with a run of a similar name; one of other numbers, such as a time, is another run."""
    return nearest(name, [each for each in names if name in each or _same_numbers(name, each)])


def _same_numbers(typed: str, name: str) -> bool:
    """Whether the parts with digits are equal, but for a misspelt character of many."""
    from difflib import SequenceMatcher  # here: needed only for errors

    numbers, others = ("".join(_WITH_DIGIT.findall(each)) for each in (typed, name))
    return not numbers or SequenceMatcher(None, numbers, others).ratio() >= _ALIKE
