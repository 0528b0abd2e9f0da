"""Read texts that a user wrote: UTF-8, or an error that says where and what to do."""

import codecs
import shlex
from pathlib import Path

from ale.errors import InputError, Problem


def read_text(path: Path, *, option: str | None = None) -> str:
    """The text of a file that a user wrote, with lines that end in a newline.

    Args:
        option: the option that names the file.

    Raises:
        InputError: it can't be read, or is not UTF-8: with the line, the byte and what to do.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"can't be read: {error.strerror}"
        raise InputError.of(message, file=str(path), path=option) from error
    return decoded(data, path, option=option).replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes, path: Path, *, line: int = 1, option: str | None = None) -> str:
    """The text of a file's bytes, or of its lines from one on.

    Args:
        path: of the file.
        line: number of the first line in `data`.
        option: the option that names the file.

    Raises:
        InputError: it is not UTF-8: with the line, the byte and what to do.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        begin = data.rfind(b"\n", 0, error.start) + 1
        encoding = "WINDOWS-1252"
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "UTF-16"
        problem = Problem(
            message=f"not UTF-8: byte {error.start - begin + 1} of the line is "
            f"0x{data[error.start]:02x}",
            file=str(path),
            line=line + data.count(b"\n", 0, error.start),
            path=option,
            hint=f"if it is {encoding}: iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} "
            "> NEW",
        )
        raise InputError([problem]) from None
