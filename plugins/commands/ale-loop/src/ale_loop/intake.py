"""Reads episodes from run directories that other programs write."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, field

from ale.learning import Learner, Origin
from ale.runs import RunReader
from ale.types import Episode, Task


@define(kw_only=True)
class _Source:
    """One run directory, and how far it was read."""

    reader: RunReader
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
        report: gets a message about what is left out.
    """

    paths: Sequence[Path]
    own: Path
    report: Callable[[str], None]
    _sources: dict[Path, _Source] = field(factory=dict)
    _left_out: Counter[str] = field(factory=Counter)

    def take(self, learner: Learner) -> int:
        """Give the learner the episodes that are new; their number.

        Raises:
            InputError: a run can't be read.
            StoreError: the disk is full.
        """
        n = 0
        for path in self._directories():
            if path not in self._sources:
                self._sources[path] = _Source(reader=RunReader(path))
            n += sum(self._took(learner, self._sources[path], path))
        return n

    def _directories(self) -> Iterator[Path]:
        for path in self.paths:
            found = [path] if (path / "manifest.json").exists() else sorted(path.glob("[!.]*"))
            for each in found:
                if (each / "manifest.json").exists() and each.resolve() != self.own.resolve():
                    yield each

    def _took(self, learner: Learner, source: _Source, path: Path) -> Iterator[bool]:
        run = str(source.reader.manifest["run_id"])
        for episode in source.episodes():
            origin = Origin(run, episode.id)
            if episode.split != "train" or episode.reward is None or learner.has(origin):
                continue
            task = source.task(episode.task_id)
            if task is None:
                self._leave_out(path, f"its task {episode.task_id} is not stored")
            elif learner.needs_tokens and not _has_tokens(episode):
                self._leave_out(path, "it has no token ids and log-probabilities")
            else:
                learner.add(task, episode, origin)
                yield True

    def _leave_out(self, path: Path, reason: str) -> None:
        self._left_out[reason] += 1
        if self._left_out[reason] == 1:
            self.report(f"an episode of {path} is left out, as others may be: {reason}")


def _has_tokens(episode: Episode) -> bool:
    return all(turn.completion.tokens is not None for turn in episode.trajectory.turns)
