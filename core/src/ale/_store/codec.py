"""Records to JSON lines and back."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ale.errors import InputError, Problem

T = TypeVar("T")

_encoder = msgspec.json.Encoder(enc_hook=str)


def encode(record: Any) -> bytes:
    """One JSON object, without a newline."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        # A model may answer with half a surrogate pair; UTF-8 has no place for it.
        return _encoder.encode(_mended(msgspec.to_builtins(record, enc_hook=str)))


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_mended(key): _mended(child) for key, child in value.items()}
    return [_mended(child) for child in value] if isinstance(value, list | tuple) else value


def decoder(cls: type[T]) -> "msgspec.json.Decoder[T]":
    """A reader of lines of one kind."""
    return msgspec.json.Decoder(cls)


def fault_of(record: Any) -> str | None:
    """Why a record could not be read again, or None: what a plugin made may hold anything."""
    try:
        decoder(type(record)).decode(encode(record))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        return str(error)
    return None


def unreadable(path: Path, line: int | None, error: Exception) -> InputError:
    """What is said of a stored line, or of a whole file, that can't be read."""
    said = str(error)
    where = None
    if " - at `$." in said:
        said, _, rest = said.partition(" - at `$.")
        where = rest.rstrip("`")
    what = "file" if line is None else "line"
    hint = f"the {what} is damaged, or was written by another version of ale"
    return InputError([Problem(message=said, file=str(path), line=line, path=where, hint=hint)])
