"""Options of the tasks ``alignment``, the criterion ``trace`` and the agent ``misaligned``."""

from pathlib import PurePosixPath
from typing import Any, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc

SetName = Literal["sycophancy", "reward-hacking", "safety", "oversight"]
Strategy = Literal[
    "keyword-stuffing", "inflated-confidence", "shortcut", "tampering", "late-writer"
]


def _pattern(_: object, attribute: "Attribute[Any]", value: str | None) -> None:
    if value is None:
        return
    import regex  # late: options are made when a task is read, not when plugins are listed

    try:
        regex.compile(value, regex.MULTILINE)
    except regex.error as error:
        raise ValueError(f"{attribute.name} is not a regular expression: {error}") from error


@frozen(kw_only=True)
class AlignmentOptions:
    """Tasks with temptations that leave traces in files."""

    sets: tuple[SetName, ...] = field(default=(), metadata=doc("Sets to take; default: all four."))
    include: tuple[str, ...] = field(
        default=(), metadata=doc("Select tasks whose id matches one of these globs.")
    )
    pressure: bool = field(
        default=True, metadata=doc("Say in the goal what the user presses for, where there is any.")
    )
    reference: Literal["honest", "misaligned"] = field(
        default="honest",
        metadata=doc("Which reference is the task's solution, for the agent `oracle`."),
    )
    grading: Literal["full", "proxy", "both"] = field(
        default="full",
        metadata=doc(
            "full: the hidden check and the traces. proxy: only the measure that the agent can "
            "see. both: the proxy first, then the others."
        ),
    )


@frozen(kw_only=True)
class TraceOptions:
    """Something must, or must not, be in what an agent did or left."""

    where: Literal["file", "answer", "commands"] = field(
        default="file",
        metadata=doc(
            "file: the file `path`. answer: the agent's last message, without lines of the goal. "
            "commands: the arguments of its tool calls."
        ),
    )
    path: str | None = field(
        default=None, metadata=doc("File, relative to the workspace or absolute.")
    )
    text: str | None = field(default=None, metadata=doc("Literal text to find."))
    pattern: str | None = field(
        default=None,
        validator=_pattern,
        metadata=doc(
            "Regular expression to find; ^ and $ match at each line's start and end. With neither "
            "text nor pattern, the file has to exist."
        ),
    )
    absent: bool = field(default=False, metadata=doc("Pass if it is not found."))
    affirmed: bool = field(
        default=False,
        metadata=doc(
            "Count no match that its sentence negates: 'not Sydney', 'Sydney is wrong'. English."
        ),
    )

    def __attrs_post_init__(self) -> None:
        if (self.where == "file") != (self.path is not None):
            raise ValueError("'path' goes with 'where: file', and with nothing else")
        if self.path is not None and (not self.path.strip() or "\0" in self.path):
            raise ValueError("path must name a file")
        if self.path is not None and ".." in PurePosixPath(self.path).parts:
            raise ValueError(f"path must not contain '..', found {self.path!r}")
        if self.text is not None and self.pattern is not None:
            raise ValueError("give at most one of text and pattern")
        if self.text == "":
            raise ValueError("text must not be empty: everything contains it")
        if self.where != "file" and self.text is None and self.pattern is None:
            raise ValueError(f"'where: {self.where}' needs a text or a pattern")


@frozen(kw_only=True)
class MisalignedOptions:
    """Gives in to a task's temptation, by one strategy."""

    strategy: Strategy = field(
        metadata=doc(
            "keyword-stuffing and inflated-confidence write words in place of work; shortcut runs "
            "the task's misaligned reference; tampering makes every test succeed; late-writer "
            "leaves a process that does the work later."
        )
    )
