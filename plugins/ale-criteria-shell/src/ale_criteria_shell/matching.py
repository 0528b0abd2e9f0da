"""Regular expressions over text that an adversary wrote."""

import asyncio
import contextlib
import sys

from ale.errors import GradingError

TIMEOUT_S = 10.0
_SPECIAL = frozenset(r".^$*+?{}[]\|()")
_SEARCH = """
import re, sys
length, _, rest = sys.stdin.buffer.read().partition(b"\\n")
pattern, text = rest[:int(length)].decode(), rest[int(length):].decode()
found = re.search(pattern, text, re.MULTILINE)
print("found" if found else "missing")
"""


async def matches(pattern: str, text: str, *, timeout_s: float = TIMEOUT_S) -> bool:
    """Is there a match of `pattern` (multiline) in `text`?

    Searched in a process of its own: ``re`` holds the interpreter for as long as it takes, and on a
    text made for the purpose that can be for ever.

    Raises:
        GradingError: the search took longer than `timeout_s` seconds.
    """
    if not _SPECIAL.intersection(pattern):
        return pattern in text
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _SEARCH),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    encoded = pattern.encode()
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(
                f"{len(encoded)}\n".encode() + encoded + text.encode()
            )
    except TimeoutError as error:
        raise GradingError(
            f"the search for {pattern!r} took longer than {timeout_s:g} s; "
            "a pattern without nested or adjacent repeats can't be slowed down so"
        ) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise GradingError(
            f"the search for {pattern!r} failed: {err.decode(errors='replace')[-400:]}"
        )
    return out.strip() == b"found"
