"""The process that compares formulas: a request per line in, a verdict per line out."""

import json
import logging
import re
import resource
import sys
from collections.abc import Iterator

MEMORY = 4 << 30
"""Bytes of address space; a formula can be made that needs any amount."""

_FULL_STOP = re.compile(r"(?<!\\right)\.(?=[\s$]*$)")
_THOUSANDS = re.compile(r"(?<=\d)\\,(?=\d{3}(?!\d))")


def verdict(expected: str, found: str, digits: int) -> tuple[bool, str]:
    """Whether a formula equals the expected one, and why not where that is not plain.

    Args:
        digits: after the point, that have to agree.
    """
    from math_verify import parse, verify  # type: ignore[import-untyped]

    gold, given = _parsed(parse, expected), _parsed(parse, found)
    if not given:
        return False, "math-verify can't read it"
    if not gold:
        return False, f"math-verify can't read the expected {expected!r}"
    try:
        return bool(verify(gold, given, float_rounding=digits, timeout_seconds=None)), ""
    except (ArithmeticError, AttributeError, MemoryError, TypeError, ValueError) as error:
        return False, f"{type(error).__name__} while comparing"


def _parsed(parse: object, text: str) -> list[object]:
    assert callable(parse)
    # Three forms that people read at once, and math-verify does not: "5.", 1\,000 and 90°.
    text = _THOUSANDS.sub("", _FULL_STOP.sub("", text)).replace("°", r"^\circ")
    parsed: list[object] = parse("\\boxed{" + text + "}", parsing_timeout=None)
    return parsed


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
