"""Text for a shell."""

from collections.abc import Sequence

from ale.types import ExecResult

# Linux's MAX_ARG_STRLEN is 128 KiB for one argument; longer commands go through a file.
LONGEST_ARGUMENT = 100_000
NUL_REFUSED = b"a command can't contain a NUL byte\n"


def as_bytes(text: str) -> bytes:
    """UTF-8; lone surrogates (from JSON or file names) are encoded, not refused."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def quoted(text: bytes) -> bytes:
    """`text` as one quoted word of shell script. It must not contain a NUL."""
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"


def has_nul(command: str | Sequence[str], cwd: str | None) -> bool:
    """Does it contain a NUL byte, which neither an argument nor a path can?"""
    return any("\0" in text for text in ([command] if isinstance(command, str) else command)) or (
        "\0" in (cwd or "")
    )


def refused(why: bytes) -> ExecResult:
    """The result of a command that could not be started."""
    return ExecResult(exit_code=126, stdout=b"", stderr=why)
