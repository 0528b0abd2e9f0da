"""Regular expressions in a search: RE2, whose time is linear in the text for every pattern, and a
limit of time for all of it.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

import re2
from attrs import define

from ale.errors import InputError

LONGEST = 500
"""Characters of a pattern."""
_MEMORY = 256 << 10
"""Bytes that RE2 may use for one, which bound its time: a pattern that needs more is refused."""
_QUOTED = re.compile(r"(?P<before>.*?)(?:^|\s)/(?P<pattern>.+)/(?P<after>(?:\s.*)?)", re.DOTALL)


class Wanted(NamedTuple):
    """The words and the regular expression of a search; None without one."""

    words: str
    pattern: str | None


def split_pattern(text: str) -> Wanted:
    """The words and the pattern of a text such as ``refused /port \\d+/``."""
    found = _QUOTED.fullmatch(text.strip())
    if found is None:
        return Wanted(text, None)
    return Wanted(
        " ".join([found["before"].strip(), found["after"].strip()]).strip(), found["pattern"]
    )


@lru_cache(maxsize=32)
def compiled(pattern: str) -> Any:
    """The pattern, ready to search.

    Raises:
        InputError: it is none, or too long.
    """
    if len(pattern) > LONGEST:
        raise InputError.of(
            f"the regular expression has {len(pattern)} characters",
            path="text",
            expected=f"at most {LONGEST}",
        )
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        why = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        hint = "the syntax is RE2's: no (?=, (?<= and \\1" if "invalid" in why else None
        message = f"/{pattern}/ is no regular expression: {why}"
        raise InputError.of(message, path="text", hint=hint) from None


@define
class Limit:
    """A time until which a search may match patterns."""

    until: float
    over: bool = False
    """It has come, and what was found until then is not all."""


_LIMIT: ContextVar[Limit | None] = ContextVar("limit", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[Limit]:
    """Give the searches of the block so many seconds together."""
    limit = Limit(time.monotonic() + seconds)
    token = _LIMIT.set(limit)
    try:
        yield limit
    finally:
        _LIMIT.reset(token)


def out_of_time() -> bool:
    """Whether a search of this block was ended by its limit."""
    limit = _LIMIT.get()
    return limit is not None and limit.over


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is in the text: a function of the database.

    Raises:
        TimeoutError: the limit has come.
    """
    limit = _LIMIT.get()
    if limit is not None and time.monotonic() > limit.until:
        limit.over = True
        raise TimeoutError
    return compiled(pattern).search(text) is not None
