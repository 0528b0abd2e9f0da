"""Regular expressions over untrusted text."""

import asyncio

import regex

TIMEOUT_S = 10.0


class SearchTooLongError(Exception):
    """A search took longer than its limit. The text is the agent's, so that its check fails."""


async def matches(pattern: str, text: str, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Is there a match of `pattern` (multiline) in `text`?

    Searched in a thread by the package ``regex``, which reads what Python's ``re`` reads and,
    unlike it, can be given a time limit and lets other threads run: on a crafted text a search can
    take for ever.

    Raises:
        SearchTooLongError: the search took longer than `timeout_s` seconds.
    """
    try:
        found = await asyncio.to_thread(
            regex.search, pattern, text, regex.MULTILINE, concurrent=True, timeout=timeout_s
        )
    except TimeoutError as error:
        raise SearchTooLongError(
            f"the search for {pattern!r} took longer than {timeout_s:g} s, which counts as no "
            "match; a pattern without nested or adjacent repeats is not affected"
        ) from error
    return found is not None
