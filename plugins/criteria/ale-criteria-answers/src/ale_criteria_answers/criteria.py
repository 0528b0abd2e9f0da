"""The criteria: find the answer, compare it, say what was compared."""

import re

from attrs import frozen

from ale.protocols import Sandbox
from ale.types import Score, Task, Trajectory
from ale_criteria_answers.formulas import equal_formulas
from ale_criteria_answers.options import (
    ChoiceOptions,
    ExactMatchOptions,
    MathEqualOptions,
    NumericAnswerOptions,
)
from ale_grading.answers import (
    Extracted,
    boxed,
    choice,
    corrected,
    final_number,
    last_line,
    marked,
    messages_of,
    number_value,
    read_answer_file,
    same_number,
    without_reasoning,
)

_LONGEST = 1000
"""Characters of an answer that are stored for votes."""
_IN_MATHS = re.compile(r"(?<!\\)\$\$?([^$]+)(?<!\\)\$\$?")
_DENIES = re.compile(r"\b(?:not|never|cannot|neither)\b|n['’]t\b|[\d\\]", re.IGNORECASE)
_SIZED = re.compile(r"\\[dt]frac(?![a-z])")
_NO_MEANING = re.compile(r"\s|\\left(?![a-z])|\\right(?![a-z])|\\[,;!]|\$")


@frozen
class NumericAnswer:
    """``numeric_answer``."""

    options: NumericAnswerOptions

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Compare numbers by value. Raises as `Criterion`."""
        options = self.options
        text, where = await _text(options.answer, trajectory, sandbox)
        found = None if text is None else final_number(text)
        if found is None:
            return _none("numeric_answer", "number", where)
        passed = same_number(found.text, options.expected, options.tolerance)
        normal = _normal_formula(found.text)
        return _score("numeric_answer", passed, found, where, options.expected, normal)


@frozen
class MathEqual:
    """``math_equal``."""

    options: MathEqualOptions

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Compare formulas, in a process of its own. Raises as `Criterion`."""
        options = self.options
        text, where = await _text(options.answer, trajectory, sandbox)
        found = None if text is None else _formula(corrected(without_reasoning(text)))
        if found is None:
            return _none("math_equal", "formula", where)
        gold = boxed(options.expected)
        expected = options.expected if gold is None else gold.text
        passed, why = await equal_formulas(expected, found.text, options.digits, options.timeout_s)
        normal = _normal_formula(found.text)
        return _score("math_equal", passed, found, where, expected, normal, why)


@frozen
class ExactMatch:
    """``exact_match``."""

    options: ExactMatchOptions

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Compare texts; runs of white space count as one space. Raises as `Criterion`."""
        options = self.options
        text, where = await _text(options.answer, trajectory, sandbox)
        found = None if text is None else self._taken(text)
        if found is None:
            return _none("exact_match", "text", where)
        normal = self._normal(found.text)
        passed = normal == self._normal(options.expected)
        return _score("exact_match", passed, found, where, options.expected, normal)

    def _taken(self, text: str) -> Extracted | None:
        if self.options.take == "all":
            return Extracted(text, "the whole text") if text.strip() else None
        found = marked(text) if self.options.take == "marked" else None
        return found or last_line(text)

    def _normal(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.options.ignore_case else text


@frozen
class Choice:
    """``choice``."""

    options: ChoiceOptions

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Compare letters. Raises as `Criterion`."""
        options = self.options
        text, where = await _text(options.answer, trajectory, sandbox)
        found = None if text is None else choice(text, options.letters)
        if found is None:
            return _none("choice", f"letter of {options.letters}", where)
        expected = options.expected.upper()
        return _score("choice", found.text == expected, found, where, expected, found.text)


async def _text(place: str, trajectory: Trajectory, sandbox: Sandbox) -> tuple[str | None, str]:
    """The text with the answer, and where it is; or None, and why there is none."""
    if place != "message":
        found, why = await read_answer_file(place, sandbox)
        return (None, why) if found is None else (found.text, found.source)
    messages = [message for message in messages_of(trajectory) if message.strip()]
    if not messages:
        return None, "the agent wrote no message"
    return messages[-1], "the last message"


def _formula(text: str) -> Extracted | None:
    found = marked(text) or last_line(text)
    if found is None:
        return None
    words = _IN_MATHS.split(found.text)
    if len(words) == 3 and words[0].strip() and not _DENIES.search(words[0]):
        return Extracted(words[1], f"the only formula in {found.source}")
    return Extracted(found.text.strip(" \t*_"), found.source)


def _none(criterion: str, kind: str, where: str) -> Score:
    return Score(
        criterion=criterion, passed=False, value=0.0, detail=f"no {kind} was found: {where}"
    )


def _normal_formula(text: str) -> str:
    """The value of a number, or else the formula without what does not change its meaning."""
    value = number_value(text)
    return _NO_MEANING.sub("", _SIZED.sub(r"\\frac", text)) if value is None else str(value)


def _score(
    criterion: str,
    passed: bool,
    found: Extracted,
    where: str,
    expected: str,
    normal: str,
    why: str = "",
) -> Score:
    shown = found.text if len(found.text) <= 200 else found.text[:200] + "..."
    detail = f"found {shown!r} in {found.source} of {where}; expected {expected!r}"
    return Score(
        criterion=criterion,
        passed=passed,
        value=float(passed),
        detail=f"{detail}; {why}" if why else detail,
        answer=normal[:_LONGEST],
    )
