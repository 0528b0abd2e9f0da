"""Are two formulas equal? Their parts are compared one by one, numbers exactly.

math-verify reads the parts and compares what is neither a number nor a list. It rounds numbers to
a few digits after the point, drops bases, and takes any side of an equation: here these are decided
before it is asked.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from ale_criteria_answers.splitting import (
    Enclosed,
    Matrix,
    about_of,
    alternatives,
    elements,
    enclosed,
    interval_of,
    matrix_of,
    sides,
    words_of,
)
from ale_grading.answers import number_value, same_number

Verify = Callable[[str, str], bool]
_BASE = re.compile(r"([0-9A-Fa-f]+)_(?:\{?\s*(\d{1,2})\s*\}?|\{?\\text\{\s*(\w+)\s*\}\}?)")
_PLAIN_DIGITS = re.compile(r"[0-9A-Fa-f]+")
_LETTERS = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi)")
_NAMED = re.compile(r"\\(?:text|mathrm)\{[^{}]*\}|\\[a-zA-Z]+")
_COMPARED = re.compile(r"[<>≤≥≠]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])")
_MEMBER = re.compile(r"^\s*[a-zA-Z]\s*(?:\\in(?![a-zA-Z])|∈)\s*")
_UNIT = re.compile(r"(?<=\S)\s*\\(?:text|mathrm|mbox|textrm)\{([^{}]*)\}(\^\{?[-\d]+\}?)?[\s.]*$")
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\(?:circ|degree)\s*\}?|°)\s*$")
_METRIC = frozenset({"mm", "cm", "dm", "m", "km", "mg", "g", "kg", "ml", "l", "s", "h", "min"})
_EXACT = 40
"""Digits to which two exact numbers have to agree to be equal."""
MOST_DEEP = 20


@frozen
class Equality:
    """Compares formulas.

    Args:
        digits: that have to agree where one of two numbers is a decimal fraction.
        parse: the number or formula that a text means, or None.
        verify: math-verify, for all that is not decided here.
    """

    digits: int
    parse: Callable[[str], Any]
    verify: Verify

    def equal(self, expected: str, found: str, depth: int = 0) -> bool:
        """Is `found` the same as `expected`?"""
        e, f = (_MEMBER.sub("", text.strip()) for text in (expected, found))
        if not f:
            return False
        if _squeezed(e) == _squeezed(f):
            return True
        if depth > MOST_DEEP:
            return False
        for rule in (
            self._words,
            self._numerals,
            self._relations,
            self._matrices,
            self._unions,
            self._lists,
            self._numbers,
        ):
            decided = rule(e, f, depth + 1)
            if decided is not None:
                return decided
        return self.verify(e, f)

    def _words(self, e: str, f: str, depth: int) -> bool | None:
        """Texts such as ``\\text{east}``, apart from case; of both or of the expected one."""
        wanted, given = words_of(e), words_of(f)
        if wanted is None:
            return None
        return given is not None and wanted.casefold() == given.casefold()

    def _numerals(self, e: str, f: str, depth: int) -> bool | None:
        """Numerals with a base: the same digits and the same base, which may be left out."""
        wanted, given = _BASE.fullmatch(e), _BASE.fullmatch(f)
        if wanted is None and given is None:
            return None
        if wanted is not None and given is not None:
            return _numeral(wanted) == _numeral(given)
        one, other = (wanted, f) if wanted is not None else (given, e)
        assert one is not None
        return bool(_PLAIN_DIGITS.fullmatch(other)) and one[1].upper() == other.upper()

    def _relations(self, e: str, f: str, depth: int) -> bool | None:
        """Equations: of a chain every side that is a number has to be right."""
        if _COMPARED.search(e) or _COMPARED.search(f):
            one, other = interval_of(e), interval_of(f)
            return self.equal(one, other, depth) if (one, other) != (e, f) else self.verify(e, f)
        if len(elements(e)) > 1 or len(elements(f)) > 1:
            return None
        exact, about = about_of(f)
        if about and not _is_name(exact) and not self._is_about(exact, about):
            return False
        wanted, given = sides(e), sides(f)
        if len(wanted) == 1 and len(given) == 1:
            return None
        if len(wanted) == 1:
            told = [side for side in given[:-1] if not _is_name(side)] + [given[-1]]
            return all(self.equal(e, side, depth) for side in told)
        if len(given) == 1:
            return _is_name(wanted[0]) and self.equal(wanted[-1], f, depth)
        if len(wanted) == len(given) == 2 and _squeezed(wanted[0]) == _squeezed(given[0]):
            return self.equal(wanted[1], given[1], depth)
        return self.verify(e, f)

    def _is_about(self, exact: str, about: str) -> bool:
        """Is the second number the first one, rounded or cut? True if one is not read."""
        shown = re.fullmatch(r"\D*(\d+?)(0*)(?:\.(\d+))?\D*", about)
        number, rounded = self.parse(exact), self.parse(about)
        if shown is None or number is None or rounded is None:
            return True
        from sympy import N, Rational  # type: ignore[import-untyped]

        unit = Rational(10) ** (-len(shown[3]) if shown[3] else len(shown[2]))
        exceeds = N(abs(number) - abs(rounded), 30)
        if not (exceeds.is_number and exceeds.is_real):
            return True
        return bool(-unit / 2 <= exceeds < unit)

    def _matrices(self, e: str, f: str, depth: int) -> bool | None:
        wanted, given = matrix_of(e), matrix_of(f)
        if wanted is None or given is None:
            one, other = (_vector(each, text) for each, text in ((wanted, e), (given, f)))
            both = wanted or given
            return None if both is None or not one or not other else self.equal(one, other, depth)
        same = wanted.kind == given.kind and list(map(len, wanted.rows)) == list(
            map(len, given.rows)
        )
        return same and all(
            self.equal(one, other, depth)
            for row, others in zip(wanted.rows, given.rows, strict=True)
            for one, other in zip(row, others, strict=True)
        )

    def _unions(self, e: str, f: str, depth: int) -> bool | None:
        wanted, given = (re.split(r"\\cup(?![a-zA-Z])|∪", text) for text in (e, f))
        if len(wanted) == 1 and len(given) == 1:
            return None
        return self._in_any_order(wanted, given, depth)

    def _lists(self, e: str, f: str, depth: int) -> bool | None:
        """Lists in any order; pairs and intervals in theirs, with their brackets."""
        wanted, given = enclosed(e), enclosed(f)
        one, other = (self._expanded(each) for each in (wanted, given))
        if len(one) == 1 and len(other) == 1:
            if wanted.marks or given.marks:
                return self.equal(wanted.inner, given.inner, depth)
            return None
        if {"\\{", ""} >= {wanted.marks[:2], given.marks[:2]}:
            if "\\{" in (wanted.marks[:2], given.marks[:2]):
                one, other = map(_once, (one, other))
            return self._in_any_order(one, other, depth)
        if wanted.marks and given.marks and wanted.marks != given.marks:
            return False
        return self._in_order(one, other, depth)

    def _expanded(self, given: Enclosed) -> list[str]:
        ordered = given.marks not in ("", "\\{\\}")
        return [
            each
            for element in elements(given.inner)
            for each in ([element] if ordered else alternatives(element))
        ]

    def _in_order(self, one: Sequence[str], other: Sequence[str], depth: int) -> bool:
        return len(one) == len(other) and all(
            self.equal(a, b, depth) for a, b in zip(one, other, strict=True)
        )

    def _in_any_order(self, one: Sequence[str], other: Sequence[str], depth: int) -> bool:
        if len(one) != len(other) or len(one) > MOST_DEEP:
            return False
        left = list(other)
        for each in one:
            match = next((each_ for each_ in left if self.equal(each, each_, depth)), None)
            if match is None:
                return False
            left.remove(match)
        return True

    def _numbers(self, e: str, f: str, depth: int) -> bool | None:
        """Numbers: exactly, or within the tolerance where one is a decimal fraction."""
        if _units_differ(e, f):
            return False
        e, f = _DEGREES.sub("", _UNIT.sub("", e)), _DEGREES.sub("", _UNIT.sub("", f))
        if number_value(e) is not None and number_value(f) is not None and same_number(f, e):
            return True
        wanted, given = self.parse(e), self.parse(f)
        if wanted is None or given is None:
            return None
        return self._close(wanted, given)

    def _close(self, wanted: Any, given: Any) -> bool:
        from sympy import (
            Float,
            N,
            Rational,
            nsimplify,
            oo,
            zoo,
        )

        if any(each.has(oo, -oo, zoo) for each in (wanted, given)):
            return bool(wanted == given)
        inexact = [each.has(Float) for each in (wanted, given)]
        exact = [
            each.xreplace({number: nsimplify(str(number)) for number in each.atoms(Float)})
            for each in (wanted, given)
        ]
        if exact[0] == exact[1]:
            return True
        if all(each.is_Rational for each in exact) and not any(inexact):
            return False
        a, b = (N(each, _EXACT + 20) for each in exact)
        far, size = (N(abs(each), 30) for each in (a - b, a))
        if not (far.is_number and far.is_real):
            return False
        if bool(far <= size * Rational(1, 10**_EXACT)):
            return True
        if not any(inexact):
            return False
        written_out = all(map(_ends, exact))
        scale = min(1, size) / 2 if written_out else size
        return bool(far <= scale * (1 + Rational(1, 10**9)) / 10**self.digits)


def _ends(number: Any) -> bool:
    """Can it be written as a decimal fraction with an end?"""
    if not number.is_Rational:
        return False
    rest = int(number.q)
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


def _vector(matrix: Matrix | None, text: str) -> str:
    """A row or a column as a tuple, and a tuple itself; empty of all else."""
    if matrix is None:
        return text if enclosed(text).marks == "()" else ""
    rows = matrix.rows
    flat = rows[0] if len(rows) == 1 else [row[0] for row in rows if len(row) == 1]
    return f"({','.join(flat)})" if len(rows) == 1 or len(flat) == len(rows) else ""


def _once(texts: Sequence[str]) -> list[str]:
    return list({_squeezed(text): text for text in texts}.values())


def _squeezed(text: str) -> str:
    text = re.sub(r"(?<=\d)\s+(?=\d)", "~", text)
    return re.sub(r"\s+|\\[,;!: ]|\\left(?![a-z])|\\right(?![a-z])", "", text)


def _numeral(found: re.Match[str]) -> tuple[str, str]:
    return found[1].upper(), (found[2] or found[3]).casefold()


def _is_name(side: str) -> bool:
    """Does it stand for what is asked, such as ``x`` or ``f(x)``, and is no number?"""
    return bool(_LETTERS.search(_NAMED.sub(_word, side))) or words_of(side) is not None


def _word(found: re.Match[str]) -> str:
    greek = _LETTERS.fullmatch(found[0])
    return "x" if greek or found[0].startswith((r"\text", r"\mathrm", r"\angle")) else " "


def _units_differ(e: str, f: str) -> bool:
    one, other = (_UNIT.search(text) for text in (e, f))
    if one is None or other is None:
        return False
    a, b = (found[1].strip().strip(".") for found in (one, other))
    return a != b and {a, b} <= _METRIC
