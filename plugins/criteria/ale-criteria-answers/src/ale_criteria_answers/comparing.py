"""The process that compares formulas: a request per line in, a verdict per line out."""

import json
import logging
import re
import resource
import sys
from collections.abc import Iterator
from typing import Any

from ale_criteria_answers.equality import Equality

MEMORY = 4 << 30
"""Bytes of address space; a formula can be made that needs any amount."""

_FULL_STOP = re.compile(r"(?:(?<!\\right)\.|,)(?=[\s$]*$)")
_BIGGEST = 20_000
"""A power or factorial of a greater number is not worked out."""
_TOWER = re.compile(r"\^\s*\{?\s*[\d.]+\s*\^|\*\*\s*[\d.]+\s*\*\*|!\s*!|\)\s*!|\}\s*!")
_GREAT = re.compile(r"(?:\^|\*\*)\s*[({]*\s*[-+]?\s*(\d{5,})|(\d{5,})\s*!")
_SIGNS = {
    "−": "-",
    "–": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "÷": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "±": r"\pm ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "½": r"\frac{1}{2}",
    "²": "^{2}",
    "³": "^{3}",
    r"\degree": r"^\circ",
    r"\langle": "(",
    r"\rangle": ")",
    "**": "^",
}
_ANGLE = re.compile(
    r"\\(sin|cos|tan|cot|sec|csc)\s*(?:\\left)?[({]?\s*(\d+)\s*(?:°|\^\s*\{?\s*\\circ\s*\}?)"
    r"\s*(?:\\right)?[)}]?"
)
_WRITTEN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\(?:boxed|fbox)\s*(?=\{)"), ""),
    (re.compile(r"^\s*\\(?:text|mathrm|textbf|mathbf)\{([^{}]*\d[^{}]*)\}\s*$"), r"\1"),
    (re.compile(r"\\varnothing|\\\{\s*\\\}|^\s*\{\s*\}\s*$"), r"\\emptyset "),
    (re.compile(r"\\mathbb\s*\{?\s*R\s*\}?"), r"(-\\infty,\\infty)"),
    (re.compile(r"\\\(|\\\)|\\\[(?=.)|\\\](?=\s*$)|\$\$?(?!\d)|(?<!\\)\$(?=\d)"), ""),
    (re.compile(r"\\\$|\\mathdollar|[€£¥]"), ""),
    (re.compile(r"\\[dtc]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"(?<=\d)(?:\\,|\{,\})(?=\d{3}(?!\d))"), ""),
    (re.compile(r"^(\s*-?\s*\d{1,3}(?:,\d{3})+(?:\.\d+)?)(?!\d|\s*,)"), ""),
    (re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\w))"), r"\\sqrt{\1\2\3}"),
    (re.compile(r"(?<![\\a-zA-Z])sqrt\s*(?:\(([^()]*)\)|(\w))"), r"\\sqrt{\1\2}"),
    (re.compile(r"\\sqrt\s*\{\s*-\s*1\s*\}"), "i"),
    (re.compile(r"\\sqrt\s*\{\s*-\s*(\d+)\s*\}"), r"\\sqrt{\1} i"),
    (re.compile(r"(?<![\\a-zA-Z])(pi|infty|infinity|sin|cos|tan|ln)(?![a-zA-Z])"), ""),
    (re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,4})(?!\w)"), r"\1 \\times 10^{\2}"),
    (re.compile(r"(?<![\w./])(-?\d+)\s+(\d+)\s*/\s*(\d+)(?![\w.])"), r"\1\\frac{\2}{\3}"),
    (_ANGLE, r"\\\1{(\\frac{\2 \\pi}{180})}"),
)
_REPEATING = re.compile(r"(?<![\d.])(\d*)\.(\d*)\\(?:overline|bar)\{(\d+)\}")


def verdict(expected: str, found: str, digits: int) -> tuple[bool, str]:
    """Whether a formula equals the expected one, and why not where that is not plain.

    Args:
        digits: that have to agree where one of two numbers is a decimal fraction.
    """
    wanted, given = written(expected), written(found)
    if wanted == given:
        return True, ""
    if too_great(given):
        return False, "it has a number that is too large to work out"
    try:
        return Equality(digits, number_of, _Library(digits).equal).equal(wanted, given), ""
    except (ArithmeticError, AttributeError, MemoryError, TypeError, ValueError) as error:
        return False, f"{type(error).__name__} while comparing"
    except UnreadableError as error:
        return False, f"math-verify can't read {error}"


class UnreadableError(Exception):
    """A formula that math-verify can't read."""


class _Library:
    """math-verify, for what is neither a number nor a list."""

    def __init__(self, digits: int) -> None:
        self._digits = digits

    def equal(self, expected: str, found: str) -> bool:
        """Ask it. Raises `UnreadableError`."""
        from math_verify import verify  # type: ignore[import-untyped]

        gold, given = parsed(expected), parsed(found)
        if not given:
            raise UnreadableError("it")
        if not gold:
            raise UnreadableError(f"the expected {expected!r}")
        return bool(verify(gold, given, float_rounding=self._digits, timeout_seconds=None))


def too_great(text: str) -> bool:
    """Would it take for ever, or all memory, to work this out?"""
    great = (max(filter(None, found.groups())) for found in _GREAT.finditer(text))
    return bool(_TOWER.search(text)) or any(
        len(number) > 6 or int(number) > _BIGGEST for number in great
    )


def written(text: str) -> str:
    """A formula as LaTeX has it: people write ``pi/2``, ``5.``, ``90°``, ``2 1/2``, ``6e23``."""
    for sign, latex in _SIGNS.items():
        text = text.replace(sign, latex)
    for pattern, latex in _WRITTEN:
        if latex:
            text = pattern.sub(latex, text)
        elif pattern.groups:
            text = pattern.sub(_as_latex, text)
        else:
            text = pattern.sub("", text)
    return _FULL_STOP.sub("", _REPEATING.sub(_fraction, text)).strip()


def _as_latex(found: re.Match[str]) -> str:
    """A number without its separators, or a name as a command."""
    if found[0].strip()[-1].isdigit():
        return found[0].replace(",", "")
    return "\\" + {"infinity": "infty"}.get(found[1], found[1]) + " "


def _fraction(found: re.Match[str]) -> str:
    whole, fixed, repeated = found[1] or "0", found[2], found[3]
    if len(found[0]) > 100:
        return found[0]
    top = int(whole + fixed + repeated) - int(whole + fixed)
    return rf"\frac{{{top}}}{{{'9' * len(repeated)}{'0' * len(fixed)}}}"


def number_of(text: str) -> Any:
    """The number that a text means, for sympy; None if it means something else."""
    from sympy import Expr, I  # type: ignore[import-untyped]

    found = parsed(text)
    made = found[0] if found else None
    if isinstance(made, Expr):
        made = made.subs({name: I for name in made.free_symbols if str(name) == "i"})
    if not isinstance(made, Expr) or made.free_symbols:
        return None
    made = made.doit()
    return made if isinstance(made, Expr) and made.is_number else None


def parsed(text: str) -> list[Any]:
    """The expressions that math-verify reads in a text."""
    from math_verify import parse

    found: list[Any] = parse("\\boxed{" + text + "}", parsing_timeout=None)
    return found


def verdicts(lines: Iterator[str]) -> Iterator[str]:
    """The verdict on each request, as a line."""
    for line in lines:
        expected, found, digits = json.loads(line)
        try:
            yield json.dumps(verdict(expected, found, digits)) + "\n"
        except RecursionError:
            yield json.dumps((False, "it is nested too deeply")) + "\n"


def main() -> None:
    """Serve until the input ends."""
    import math_verify  # noqa: F401 - before it says that it is ready

    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = sys.stdout
    sys.stdout = sys.stderr
    out.write("ready\n")
    out.flush()
    for line in verdicts(iter(sys.stdin.readline, "")):
        out.write(line)
        out.flush()


if __name__ == "__main__":
    main()
