"""Regular expressions over untrusted text."""

import asyncio

import regex

from ale.errors import GradingError

TIMEOUT_S = 10.0


def search(pattern: str, text: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Is there a match of `pattern` (multiline) in `text`?

    By the package ``regex``, which reads what Python's ``re`` reads and, unlike it, can be given a
    time limit and lets other threads run: on a crafted text a search can take for ever.

    Raises:
        GradingError: the search took longer than `timeout_s` seconds.
    """
    try:
        found = regex.search(pattern, text, regex.MULTILINE, concurrent=True, timeout=timeout_s)
    except TimeoutError as error:
        raise GradingError(
            f"the search for {pattern!r} took longer than {timeout_s:g} s; "
            "a pattern without nested or adjacent repeats is not affected"
        ) from error
    return found is not None


async def matches(pattern: str, text: str, *, timeout_s: float = TIMEOUT_S) -> bool:
    """As `search`, in a thread."""
    return await asyncio.to_thread(search, pattern, text, timeout_s)
