"""The simulated file tree: the files at the start, and the effect of the solution's commands."""

from collections.abc import Callable, Sequence

from ale_tasks_shell.words import held_out_pair

ARCHIVE = ".tar"
_TRIES = 400


class ExhaustedError(Exception):
    """No word is left that the split allows here; another draw of the task may succeed."""


def base(path: str) -> str:
    """The word that a path ends with, without the ending of an archive."""
    return path.rpartition("/")[2].removesuffix(ARCHIVE)


class Scene:
    """A simulated file tree, to which steps are applied one after the other.

    Files that a step needs and no earlier step made are added to the start; their names are new, so
    no earlier step can have used them.

    Args:
        random: uniform numbers in [0, 1). No other method of a generator is used, because only
            these are the same in every version of Python.
        words: the words to draw names and contents from.
        held_out: make only held-out pairs of words; else only the others.
    """

    def __init__(
        self, random: Callable[[], float], words: Sequence[str], *, held_out: bool
    ) -> None:
        self.random = random
        self._words = words
        self._held_out = held_out
        self._used: set[str] = set()
        self.here = ""
        """The input of the next step: the output of the last one, or a file of the start."""
        self.source = ""
        """The input of the first step if no later step needs it."""
        self.files: dict[str, tuple[str, ...]] = {}
        """Regular files that the goal mentions, by path, as lines."""
        self.links: dict[str, str] = {}
        self.folders: list[str] = []
        """Folders that the goal asks for."""
        self.archives: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Archives that the goal asks for: the path of the one member, and its lines."""
        self.packed: dict[str, tuple[str, tuple[str, ...]]] = {}
        """All archives, including those of the start."""
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
        """A word that is new in the task, whatever pairs it makes."""
        for _ in range(_TRIES):
            word = self.pick(self._words)
            if word not in self._used:
                self._used.add(word)
                return word
        raise ExhaustedError

    def partner(self, path: str) -> str:
        """A word that is new in the task and makes a pair with `path` that the split allows."""
        other = base(path)
        for _ in range(_TRIES):
            word = self.pick(self._words)
            if word not in self._used and held_out_pair(word, other) is self._held_out:
                self._used.add(word)
                return word
        raise ExhaustedError

    def lines(self, path: str) -> tuple[str, ...]:
        """Content of a file, or of what a link leads to."""
        return self.files[self.links.get(path, path)]

    def give(self, path: str, lines: tuple[str, ...]) -> None:
        """Add a file to the start that has to stay unchanged."""
        self.given_files[path] = self.files[path] = lines

    def give_unnoticed(self, path: str) -> None:
        """Add a file to the start whose content is not checked."""
        self.given_files[path] = (self.pick(self._words),)

    def give_folder(self, path: str) -> None:
        """Add an empty folder to the start."""
        self.given_folders.append(path)

    def move(self, old: str, new: str) -> None:
        """A file gets another path."""
        self.files[new] = self.files.pop(old)
        self.gone.append(old)
        if old in self.executable:
            self.executable.remove(old)
            self.executable.add(new)
