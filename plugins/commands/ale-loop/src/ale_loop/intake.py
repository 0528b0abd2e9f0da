"""Reads episodes from run directories that other programs write."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, field

from ale.errors import InputError
from ale.learning import ORIGIN, Learner, Origin
from ale.runs import RunReader
from ale.types import FEEDBACK, Episode, Task


@define(kw_only=True)
class _Source:
    """One run directory, and how far it was read."""

    reader: RunReader
    written: tuple[int, int]
    """Of its manifest: another one may be of another run at the same path."""
    at: int = 0
    """Where the last line begins that was read; it is read again, which changes nothing."""
    size: int = 0
    tasks: dict[str, Task] = field(factory=dict)

    def episodes(self) -> Iterator[Episode]:
        """Those of further lines."""
        file = self.reader.path / "episodes.jsonl"
        size = file.stat().st_size if file.exists() else 0
        if size == self.size:
            return
        if size < self.size:  # a resume has removed episodes
            self.at = 0
        for at, episode in self.reader.episodes.with_offsets(self.at):
            yield episode
            self.at = at
        self.size = size

    def task(self, id: str) -> Task | None:
        """The task of an episode, which is written before it."""
        if id not in self.tasks:
            self.tasks = {task.id: task for task in self.reader.tasks}
        return self.tasks.get(id)


@define(kw_only=True)
class Intake:
    """The run directories that a loop takes its episodes from.

    Args:
        paths: run directories, or folders of some; one that is not there yet may come.
        own: the loop's own directory, which is none of them.
        report: gets a message about what is left out, and about what is not there when the loop
            starts.
    """

    paths: Sequence[Path]
    own: Path
    report: Callable[[str], None]
    _sources: dict[Path, _Source] = field(factory=dict)
    _left_out: Counter[str] = field(factory=Counter)
    _started: bool = False

    def take(self, learner: Learner) -> int:
        """Give the learner the episodes that are new; their number.

        Raises:
            InputError: a run can't be read.
            StoreError: the disk is full.
        """
        if not self._started:
            self._started = True
            for path in self.paths:
                if not path.is_dir():
                    self.report(
                        f"there is no folder {path}: its episodes are taken once it is there"
                    )
        n = 0
        for path in self._directories():
            try:
                n += sum(self._took(learner, self._source(path), path))
            except (FileNotFoundError, InputError):
                if (path / "manifest.json").exists():
                    raise
                self._sources.pop(path, None)  # it was removed meanwhile
        return n

    def _source(self, path: Path) -> _Source:
        manifest = (path / "manifest.json").stat()
        written = (manifest.st_ino, manifest.st_mtime_ns)
        if path not in self._sources or self._sources[path].written != written:
            self._sources[path] = _Source(reader=RunReader(path), written=written)
        return self._sources[path]

    def _directories(self) -> Iterator[Path]:
        for path in self.paths:
            found = [path] if (path / "manifest.json").exists() else sorted(path.glob("[!.]*"))
            for each in found:
                if (each / "manifest.json").exists() and each.resolve() != self.own.resolve():
                    yield each

    def _took(self, learner: Learner, source: _Source, path: Path) -> Iterator[bool]:
        for episode in source.episodes():
            origin = Origin.of(source.reader, episode.id)
            if episode.split != "train" or episode.reward is None or learner.has(origin):
                continue
            task = source.task(episode.task_id)
            if ORIGIN in episode.metadata:
                self._leave_out(path, "another loop has taken it from where it was recorded")
            elif task is None:
                self._leave_out(path, f"its task {episode.task_id} is not stored")
            elif learner.needs_tokens and not _has_tokens(episode):
                self._leave_out(path, "it has no token ids and log-probabilities")
            else:
                scores = source.reader.scores_of(episode)
                said = [each for each in scores if each.scorer == FEEDBACK]
                learner.add(task, episode, origin, said)
                yield True

    def _leave_out(self, path: Path, reason: str) -> None:
        self._left_out[reason] += 1
        if self._left_out[reason] == 1:
            self.report(f"an episode of {path} is left out, as others may be: {reason}")


def _has_tokens(episode: Episode) -> bool:
    return all(turn.completion.tokens is not None for turn in episode.trajectory.turns)
