"""One run's directory: make it, lock it, append to it, read it.

``manifest.json`` says what the run is; ``tasks.jsonl``, ``episodes.jsonl`` and ``events.jsonl``
grow by whole lines; ``credits/<step>.jsonl`` is written in one piece when a step is complete, and
can be made again from the episodes; ``checkpoints/`` belongs to the trainer.
"""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import msgspec

from ale._store.checkpoints import Checkpoints
from ale._store.codec import encode, unreadable
from ale._store.index import Index, StoredEpisode
from ale._store.lines import SCHEMA, Appender, Lines, write_whole, writing
from ale._store.redact import Redactor
from ale.errors import InputError, Problem, StoreError
from ale.strict import nearest
from ale.types import CreditedEpisode, Episode, Split, Task

_TASKS: Mapping[Split, str] = {"train": "tasks.jsonl", "evaluation": "evaluation_tasks.jsonl"}


class RunReader:
    """A stored run, read only."""

    def __init__(self, path: Path) -> None:
        """Open a run.

        Raises:
            InputError: it is not a run directory, or of a schema this version can't read.
        """
        self.path = path
        """The directory."""
        self.manifest = _read_manifest(path)
        """``manifest.json``: at least ``run_id``, ``config`` and ``n_tasks``."""
        self.tasks = Lines(path / _TASKS["train"], Task)
        self.evaluation_tasks = Lines(path / _TASKS["evaluation"], Task)
        self.episodes = Lines(path / "episodes.jsonl", Episode)
        """To be iterated over, as often as wanted, each time from disk; one is in memory."""
        self._heads = Lines(path / "episodes.jsonl", StoredEpisode)

    def index(self) -> Index:
        """Scan the episodes for what and where they are, without building them."""
        index = Index()
        for offset, head in self._heads.with_offsets():
            index.add(head, offset)
        return index

    def credits(self) -> Iterator[CreditedEpisode]:
        """What was credited, step by step."""
        for path in sorted((self.path / "credits").glob("*.jsonl")):
            yield from Lines(path, CreditedEpisode)

    def events(self) -> Iterator[dict[str, Any]]:
        """What happened beside the episodes: each has ``event``, ``at``, and what it says."""
        yield from Lines(self.path / "events.jsonl", dict[str, Any])


class RunDirectory:
    """A run that is going on: the one writer of its directory."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self._redactor = redactor
        self._lock = _lock(path)
        self._tasks: dict[Split, Appender] = {}
        self._episodes = Appender(path / "episodes.jsonl", redactor)
        self._events = Appender(path / "events.jsonl", redactor)
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.reader = RunReader(path)
        self.index = self.reader.index()

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any], redactor: Redactor) -> "RunDirectory":
        """Make a new one.

        Raises:
            StoreError: it exists, or can't be made.
        """
        # Under its name only with a manifest in it: without one it could not be resumed.
        partial = path.with_name(f".{path.name}.partial")
        try:
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            partial.mkdir(parents=True)
            write_whole(
                partial / "manifest.json", _pretty({"schema": SCHEMA, **manifest}, redactor)
            )
            partial.rename(path)
        except OSError as error:
            raise StoreError(f"{path} can't be made: {error.strerror}") from error
        return cls(path, redactor)

    @classmethod
    def resume(cls, path: Path, redactor: Redactor) -> "RunDirectory":
        """Go on with one; a half line at the end of a file is cut off.

        Raises:
            InputError: it is not a run directory.
            StoreError: a live process is writing to it.
        """
        _read_manifest(path)
        return cls(path, redactor)

    def add_task(self, task: Task, split: Split = "train") -> None:
        """Keep a task as it was read."""
        if split not in self._tasks:
            self._tasks[split] = Appender(self.path / _TASKS[split], self._redactor)
        self._tasks[split].append(task)

    def add_episode(self, episode: Episode) -> None:
        """Keep an episode. From here on it is done."""
        offset = self._episodes.append(episode)
        self.index.add(episode, offset)

    def add_event(self, name: str, at: float, **facts: Any) -> None:
        """Keep a line for the record of what happened when."""
        self._events.append({"event": name, "at": at, **facts})

    def has_credits(self, step: int) -> bool:
        """Is this step credited?"""
        return self._credits_path(step).exists()

    @contextmanager
    def writing_credits(self, step: int) -> Iterator[Callable[[CreditedEpisode], None]]:
        """Write a step's credits in one piece: they are there after the block, all of them.

        Raises:
            StoreError: the disk is full, say; there are none then.
        """
        target = self._credits_path(step)
        partial = target.with_suffix(".partial")
        with writing(target):
            target.parent.mkdir(exist_ok=True)
            file = partial.open("wb")

        def keep(row: CreditedEpisode) -> None:
            with writing(target):
                file.write(self._redactor.scrub_json(encode(row)) + b"\n")

        try:
            yield keep
            with writing(target):
                file.close()
                partial.replace(target)
        except BaseException:
            with suppress(OSError):  # where it can't be flushed: that has been said
                file.close()
            partial.unlink(missing_ok=True)
            raise

    def _credits_path(self, step: int) -> Path:
        return self.path / "credits" / f"{step:05d}.jsonl"

    def set_outcome(self, outcome: Mapping[str, Any]) -> None:
        """Note in the manifest how the run ended."""
        manifest = {**_read_manifest(self.path), "outcome": outcome}
        write_whole(self.path / "manifest.json", _pretty(manifest, self._redactor))

    def close(self) -> None:
        """Let go of files and lock. May be called again."""
        for appender in (*self._tasks.values(), self._episodes, self._events):
            appender.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _pretty(value: Mapping[str, Any], redactor: Redactor) -> bytes:
    plain = json.loads(redactor.scrub_json(encode(value)))
    return json.dumps(plain, indent=2, ensure_ascii=False).encode() + b"\n"


def _lock(path: Path) -> int:
    try:
        descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"{path} can't be written: {error.strerror}") from error
    try:
        # The kernel lets go of it when the process ends, however it ends.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode().strip()
        os.close(descriptor)
        raise StoreError(f"{path} is being written by process {owner}, which is alive") from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


class _Part(TypedDict):
    type: str


class _Config(TypedDict):
    chunker: _Part
    sandbox: NotRequired[_Part]
    llm: NotRequired[_Part]
    agent: NotRequired[_Part]
    credit: NotRequired[_Part]
    trainer: NotRequired[_Part]


class _Outcome(TypedDict):
    outcome: str
    seconds: float


class _Manifest(TypedDict):
    """What readers of a manifest rely on; it holds more."""

    run_id: str
    config: _Config
    n_tasks: int
    outcome: NotRequired[_Outcome | None]


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / "manifest.json"
    try:
        manifest = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        schema = manifest.get("schema")
        if schema != SCHEMA:
            message = f"schema {schema}; this version of ale reads {SCHEMA}"
            raise InputError([Problem(message=message, file=str(file), path="schema")])
        msgspec.convert(manifest, _Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError([_not_a_run(path)]) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(file, None, error) from None
    return manifest


def _not_a_run(path: Path) -> Problem:
    beside = [p.parent.name for p in path.parent.glob("*/manifest.json")]
    inside = sorted(p.parent.name for p in path.glob("*/manifest.json"))
    hint = nearest(path.name, beside)
    if not path.is_dir():
        return Problem(message="no such directory", file=str(path), hint=hint)
    if inside:
        hint = f"the folder contains runs; the latest is {path / inside[-1]}"
    return Problem(
        message="not a run directory (no manifest.json)",
        file=str(path),
        expected="the directory of a run, such as runs/20260101-120000-3f2a-quickstart",
        hint=hint or "the folder contains no runs",
    )
