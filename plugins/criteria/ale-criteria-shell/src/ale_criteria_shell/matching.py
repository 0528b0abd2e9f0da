"""Regular expressions over untrusted text."""

import asyncio
import time

import regex

TIMEOUT_S = 10.0


class SearchTooLongError(Exception):
    """A search took longer than its limit. The text is the agent's, so that its check fails."""


_DISTINCT = 5
_FOREIGN_DIGIT = r"(?![0-9])\d"


async def matches(pattern: str, text: str, *, timeout_s: float = TIMEOUT_S) -> list[str]:
    """The different matches of `pattern` (multiline) in `text`, at most five, the first one first.

    Digits are those of ASCII. Searched in a thread by the package ``regex``, which reads what
    Python's ``re`` reads and, unlike it, can be given a time limit and lets other threads run: on a
    crafted text a search can take for ever.

    Raises:
        SearchTooLongError: the search took longer than `timeout_s` seconds.
    """
    try:
        return await asyncio.to_thread(search, pattern, text, timeout_s)
    except TimeoutError as error:
        raise SearchTooLongError(
            f"the search for {pattern!r} took longer than {timeout_s:g} s, which counts as no "
            "match; a pattern without nested or adjacent repeats is not affected"
        ) from error


def search(pattern: str, text: str, timeout_s: float) -> list[str]:
    """The same, in this thread. Raises `TimeoutError`."""
    if not text.isascii():
        text = regex.sub(_FOREIGN_DIGIT, "\N{REPLACEMENT CHARACTER}", text)
    found: dict[str, None] = {}
    until = time.monotonic() + timeout_s
    searched = regex.finditer(pattern, text, regex.MULTILINE, concurrent=True, timeout=timeout_s)
    for match in searched:
        found[match[0]] = None
        if len(found) == _DISTINCT or time.monotonic() > until:
            break
    return list(found)
