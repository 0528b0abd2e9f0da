"""Options of the criteria, as a task writes them."""

from typing import Any, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc, ge, gt
from ale_grading.answers import number_value, place_of_answer

_ANSWER = doc(
    "Where the answer is: 'message', the agent's last message, or 'file:NAME', a file of the "
    "workspace."
)


def _number(_: object, attribute: "Attribute[Any]", value: str) -> None:
    if number_value(value) is None:
        raise ValueError(f"{attribute.name} must be a number, found {value!r}")


def _filled(_: object, attribute: "Attribute[Any]", value: str) -> None:
    if not value.strip():
        raise ValueError(f"{attribute.name} must not be empty")


def _letters(_: object, attribute: "Attribute[Any]", value: str) -> None:
    if len(value) < 2 or not (value.isascii() and value.isalpha()) or len(set(value)) < len(value):
        raise ValueError(f"{attribute.name} must be two or more letters, found {value!r}")


@frozen(kw_only=True)
class NumericAnswerOptions:
    """The number that the agent ends up with is the right one."""

    expected: str = field(
        validator=_number,
        metadata=doc("The right number: 18, 1,000, 3/4, 18%."),
    )
    tolerance: float = field(
        default=0.0,
        validator=ge(0),
        metadata=doc("Allowed difference, relative to the right number."),
    )
    answer: str = field(default="message", validator=place_of_answer, metadata=_ANSWER)


@frozen(kw_only=True)
class MathEqualOptions:
    """The formula that the agent ends up with is equal to the right one (by math-verify)."""

    expected: str = field(validator=_filled, metadata=doc("The right formula, in LaTeX."))
    digits: int = field(
        default=6, validator=ge(1), metadata=doc("Digits after the point that have to agree.")
    )
    timeout_s: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds for the comparison; a formula that takes longer fails."),
    )
    answer: str = field(default="message", validator=place_of_answer, metadata=_ANSWER)


@frozen(kw_only=True)
class ExactMatchOptions:
    """The text that the agent ends up with is the right one."""

    expected: str = field(validator=_filled, metadata=doc("The right text."))
    take: Literal["marked", "last_line", "all"] = field(
        default="marked",
        metadata=doc(
            "What is compared: the marked answer (\\boxed{}, ####, 'the answer is'), or the last "
            "line if none is marked; the last line; or the whole text."
        ),
    )
    ignore_case: bool = field(default=True, metadata=doc("Treat capital and small letters alike."))
    answer: str = field(default="message", validator=place_of_answer, metadata=_ANSWER)


@frozen(kw_only=True)
class ChoiceOptions:
    """The letter that the agent chooses is the right one."""

    expected: str = field(validator=_filled, metadata=doc("The right letter."))
    letters: str = field(
        default="ABCDE", validator=_letters, metadata=doc("The letters to choose from.")
    )
    answer: str = field(default="message", validator=place_of_answer, metadata=_ANSWER)

    def __attrs_post_init__(self) -> None:
        if self.expected.upper() not in tuple(self.letters.upper()):
            raise ValueError(f"expected must be one of {self.letters}, found {self.expected!r}")
