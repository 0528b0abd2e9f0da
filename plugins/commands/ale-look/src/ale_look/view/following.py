"""The facts of a run that may still be written: an update reads what was added."""

from itertools import islice
from pathlib import Path

from ale.runs import Index, RunReader
from ale_figures.forks import Counts
from ale_look.inspect.report.gathering import Facts, add_episode, complete, gather


class Following:
    """A run, and what has been read of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.readings = 0
        """How often the run was read from its beginning: each makes a new list of episodes."""
        self._begin(RunReader(path))

    def _begin(self, run: RunReader) -> None:
        self._facts = Facts(run.manifest, run.state)
        self._index, self._counts = Index(), Counts()
        self._last: tuple[int, str] | None = None
        """The offset and id of the last episode that was read."""
        self.readings += 1

    def update(self) -> Facts:
        """The facts as of now. They are changed by the next update.

        Raises:
            InputError: a stored line is damaged, or the run is gone.
        """
        run = RunReader(self._path)
        if run.manifest["config"].get("run", {}).get("schedule") == "stream":
            # A later event may say which step learned from an earlier episode.
            self.readings += 1
            return gather(run)
        if not self._read_on(run):
            self._begin(run)
            self._facts = gather(run)
            self._index = run.index()
            for offset, episode in run.episodes.once():
                self._counts.add(episode)
                self._last = (offset, episode.id)
        complete(self._facts, run, self._index, self._counts)
        return self._facts

    def _read_on(self, run: RunReader) -> bool:
        """Add what is new; False if what was read is no longer what the file has."""
        start, repeated = 0, self._index.repeated
        if self._last is not None:
            start, name = self._last
            last = next(islice(run.episodes.with_offsets(start), 1), None)
            if last is None or last[1].id != name:
                return False
        for offset, episode in run.episodes.with_offsets(start):
            if self._last is not None and offset == self._last[0]:
                continue
            self._index.add(episode, offset)
            if self._index.repeated > repeated:
                return False
            add_episode(self._facts, offset, episode, episode.step)
            self._counts.add(episode)
            self._last = (offset, episode.id)
        return True
