"""The options of the task source ``shell``."""

from typing import Any, Literal

from attrs import Attribute, field, frozen, validators

from ale.errors import nearest
from ale.plugin import doc, ge

LONGEST = 10
MOST = 1_000_000
"""Tasks: all are made and checked before a run starts, and kept in memory."""
Split = Literal["train", "held_out_parameters", "held_out_compositions"]


def _length(_: object, __: "Attribute[Any]", value: int | tuple[int, int]) -> None:
    low, high = value if isinstance(value, tuple) else (value, value)
    if not 1 <= low <= high <= LONGEST:
        raise ValueError(
            f"expected a number from 1 to {LONGEST}, or [least, most] of such numbers, "
            f"found {list(value) if isinstance(value, tuple) else value}"
        )


def _kinds(_: object, __: "Attribute[Any]", value: tuple[str, ...]) -> None:
    from ale_tasks_shell.kinds import BY_NAME  # late: listing plugins does not need it

    for name in value:
        if name not in BY_NAME:
            hint = nearest(name, BY_NAME) or f"they are {', '.join(BY_NAME)}"
            raise ValueError(f"there is no kind of step '{name}'; {hint}")
    if len(set(value)) < len(value):
        raise ValueError("a kind of step is named twice")


def _words(_: object, __: "Attribute[Any]", value: int) -> None:
    from ale_tasks_shell.words import FEWEST, VOCABULARY

    if not FEWEST <= value <= len(VOCABULARY):
        raise ValueError(f"expected a number from {FEWEST} to {len(VOCABULARY)}, found {value}")


@frozen(kw_only=True)
class ShellTasksOptions:
    """Shell tasks made from a seed."""

    seed: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "Seed of the tasks; other seeds give other tasks. The first tasks do not depend on the "
            "count."
        ),
    )
    count: int = field(
        default=100,
        validator=[ge(1), validators.le(MOST)],
        metadata=doc(f"How many tasks, at most {MOST:,}."),
    )
    split: Split = field(
        default="train",
        metadata=doc(
            "'train'; 'held_out_parameters', in which every step has a pair of words that training "
            "never has; or 'held_out_compositions', with a sequence of two kinds of steps that "
            "training never has."
        ),
    )
    length: int | tuple[int, int] = field(
        default=(1, 4),
        validator=_length,
        metadata=doc(
            f"How many commands a task takes, 1 to {LONGEST}; or [least, most], each length "
            "equally often. Lengths of such a range that the kinds can't make are left out."
        ),
    )
    kinds: tuple[str, ...] = field(
        default=(), validator=_kinds, metadata=doc("Kinds of steps to use; none means all.")
    )
    words: int = field(
        default=64,
        validator=_words,
        metadata=doc("Number of vocabulary words that names and contents are made of, 48 to 128."),
    )
