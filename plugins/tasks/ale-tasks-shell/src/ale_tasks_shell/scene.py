"""The simulated tree of files: what is there before the agent, and what its commands make of it."""

from collections.abc import Callable, Sequence

from ale_tasks_shell.words import held_out_pair

ARCHIVE = ".tar"
_TRIES = 400


class ExhaustedError(Exception):
    """No word is left that the split allows here; another draw of the task may do."""


def base(path: str) -> str:
    """The word that a path ends with, without the ending of an archive."""
    return path.rpartition("/")[2].removesuffix(ARCHIVE)


class Scene:
    """A tree of files under construction; steps are played on it one after the other.

    What a step needs and no earlier step made is added to what was given from the start; its name
    is new, so no earlier step can have missed it.

    Args:
        random: uniform numbers in [0, 1). Nothing else of a generator is used, because only these
            stay the same from one Python to the next.
        words: the words to draw names and contents from.
        held_out: join only pairs of words that training never has; else, only the others.
    """

    def __init__(
        self, random: Callable[[], float], words: Sequence[str], *, held_out: bool
    ) -> None:
        self.random = random
        self._words = words
        self._held_out = held_out
        self._used: set[str] = set()
        self.here = ""
        """What the next step works on: made by the last one, or given."""
        self.source = ""
        """What the first step read and left behind; nothing needs it any more."""
        self.files: dict[str, tuple[str, ...]] = {}
        """Regular files that the goal speaks of, by path, as lines."""
        self.links: dict[str, str] = {}
        self.folders: list[str] = []
        """Folders that the goal asks for."""
        self.archives: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Archives that the goal asks for: the path of the one member, and its lines."""
        self.packed: dict[str, tuple[str, tuple[str, ...]]] = {}
        """All archives, those that were given too."""
        self.executable: set[str] = set()
        self.gone: list[str] = []
        self.given_files: dict[str, tuple[str, ...]] = {}
        self.given_folders: list[str] = []
        self.given_archives: dict[str, tuple[str, tuple[str, ...]]] = {}

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, items: Sequence[str]) -> str:
        """One of them."""
        return items[int(self.random() * len(items))]

    def any_word(self) -> str:
        """A word that no other place of the task has, whatever it stands beside."""
        for _ in range(_TRIES):
            word = self.pick(self._words)
            if word not in self._used:
                self._used.add(word)
                return word
        raise ExhaustedError

    def partner(self, path: str) -> str:
        """A word that no other place of the task has, and that the split lets stand with `path`."""
        beside = base(path)
        for _ in range(_TRIES):
            word = self.pick(self._words)
            if word not in self._used and held_out_pair(word, beside) is self._held_out:
                self._used.add(word)
                return word
        raise ExhaustedError

    def lines(self, path: str) -> tuple[str, ...]:
        """Content of a file, or of what a link leads to."""
        return self.files[self.links.get(path, path)]

    def give(self, path: str, lines: tuple[str, ...]) -> None:
        """Have a file from the start, and see that it is left as it was."""
        self.given_files[path] = self.files[path] = lines

    def give_unnoticed(self, path: str) -> None:
        """Have a file from the start whose content nobody asks for afterwards."""
        self.given_files[path] = (self.pick(self._words),)

    def give_folder(self, path: str) -> None:
        """Have an empty folder from the start."""
        self.given_folders.append(path)

    def move(self, old: str, new: str) -> None:
        """A file gets another path."""
        self.files[new] = self.files.pop(old)
        self.gone.append(old)
        if old in self.executable:
            self.executable.remove(old)
            self.executable.add(new)
