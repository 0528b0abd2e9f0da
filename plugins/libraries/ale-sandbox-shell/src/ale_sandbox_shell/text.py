"""Text for a shell."""

from collections.abc import Sequence

from ale.types import ExecResult

# Linux's MAX_ARG_STRLEN is 128 KiB for one argument; longer commands go through a file.
LONGEST_ARGUMENT = 100_000
NUL_REFUSED = b"a command can't contain a NUL byte\n"


def as_bytes(text: str) -> bytes:
    """UTF-8; what JSON or a file name smuggled in as a lone surrogate is kept, not refused."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def quoted(text: bytes) -> bytes:
    """One word of shell script that stands for `text`, whatever is in it but a NUL."""
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"


def has_nul(command: str | Sequence[str], cwd: str | None) -> bool:
    """A NUL byte, which neither an argument nor a path can hold."""
    return any("\0" in text for text in ([command] if isinstance(command, str) else command)) or (
        "\0" in (cwd or "")
    )


def refused(why: bytes) -> ExecResult:
    """The result of a command that could not be started."""
    return ExecResult(exit_code=126, stdout=b"", stderr=why)
