"""Text for a shell."""

# Linux's MAX_ARG_STRLEN is 128 KiB for one argument; longer commands go through a file.
LONGEST_ARGUMENT = 100_000


def as_bytes(text: str) -> bytes:
    """UTF-8; lone surrogates (from JSON or file names) are encoded, not refused."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def quoted(text: bytes) -> bytes:
    """`text` as one quoted word of shell script. It must not contain a NUL."""
    return b"'" + text.replace(b"'", b"'\"'\"'") + b"'"


def restored(last: int) -> bytes:
    """Script that restores ``$?`` of the last command, for what comes after it on its line.

    In front of ``||`` a failing command does not end a shell under ``set -e``.
    """
    return b"__ale() { unset -f __ale; return %d; }; __ale || " % last if last else b""
