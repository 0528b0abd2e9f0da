"""`Problem`, the one shape in which bad input is reported, and the error that carries them."""

from collections.abc import Iterable, Sequence

from attrs import frozen


@frozen(kw_only=True)
class Problem:
    """One thing that is wrong with a config, a task or a stored run."""

    message: str
    """What is wrong, in one line."""
    file: str | None = None
    line: int | None = None
    """1-based."""
    path: str | None = None
    """Where inside the document: ``sandbox.image`` or ``success_criteria[1].command``."""
    expected: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f"{self.line}:"
        where = "" if self.file is None else f"{self.file}:{line} "
        path = "" if self.path is None else f"{self.path}: "
        text = f"{where}{path}{self.message}"
        if self.expected is not None:
            text += f"\n    expected  {self.expected}"
        if self.hint is not None:
            text += f"\n    hint      {self.hint}"
        return text


_SHORTEST_PART = 3


def nearest(name: str, names: Iterable[str]) -> str | None:
    """``did you mean 'image'?``, a hint for a `Problem`, or None where nothing is near."""
    import difflib  # late: it is needed only when something is wrong

    known = list(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not close and len(name) >= _SHORTEST_PART:
        # What is far by its letters may still be a part: 'url' of 'base_url'.
        close = sorted((each for each in known if name.lower() in each.lower()), key=len)
    return f"did you mean '{close[0]}'?" if close else None


class AleError(Exception):
    """Every error that `ale` raises on purpose."""


class InputError(AleError):
    """Something the user wrote is wrong. Carries every problem found, not the first one.

    The command line prints the problems and exits with status 2; nothing has been started.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
