"""The facts of a run that may still be written: an update reads what was added."""

from itertools import islice
from pathlib import Path

from ale.errors import InputError
from ale.runs import Index, RunReader
from ale_figures.forks import Counts
from ale_look.inspect.report.gathering import Facts, add_episode, complete, gather


class Following:
    """A run, and what has been read of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._damage: dict[str, None] = {}
        """Messages about lines that are left out, each once."""
        self.readings = 0
        """How often the run was read from its beginning: each makes a new list of episodes."""
        self._begin(self.reader())

    def reader(self) -> RunReader:
        """The run without its damaged lines, which the facts name."""
        return RunReader(self._path, self.leave_out)

    def leave_out(self, error: InputError) -> None:
        """Note a damaged line, for the facts to name."""
        self._damage.setdefault(str(error))

    def _begin(self, run: RunReader) -> None:
        self._facts = Facts(run.manifest, run.state)
        self._index, self._counts = Index(), Counts()
        self._last: tuple[int, str] | None = None
        """The offset and id of the last episode that was read."""
        self.readings += 1

    def update(self) -> Facts:
        """The facts as of now. They are changed by the next update.

        Raises:
            InputError: the run is gone, or its manifest is damaged.
        """
        run = self.reader()
        if run.manifest["config"].get("run", {}).get("schedule") == "stream":
            # A later event may say which step learned from an earlier episode.
            self.readings += 1
            self._damage.clear()
            self._facts = gather(run)
        else:
            self._follow(run)
        self._facts.left_out = [*self._damage]
        return self._facts

    def _follow(self, run: RunReader) -> None:
        if not self._read_on(run):
            self._begin(run)
            self._damage.clear()
            self._facts = gather(run)
            self._index = run.index()
            for offset, episode in run.episodes.once():
                self._counts.add(episode)
                self._last = (offset, episode.id)
        complete(self._facts, run, self._index, self._counts)

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
