"""Records to JSON lines and back."""

import json
from pathlib import Path
from typing import Any

import msgspec

from ale.errors import InputError


def _json_value(value: Any) -> Any:
    """For what JSON does not have: numpy's and torch's scalars are numbers, other objects text."""
    if callable(item := getattr(value, "item", None)) and getattr(value, "shape", None) == ():
        return item()
    return str(value)


_BYTES = (bytes, bytearray, memoryview)
_encoder = msgspec.json.Encoder(enc_hook=_json_value)


def encode(record: Any) -> bytes:
    """One JSON object, without a newline."""
    try:
        return _encoder.encode(record)
    except UnicodeEncodeError:
        # A model may answer with half a surrogate pair; UTF-8 can't encode it.
        return _encoder.encode(_as_utf8(msgspec.to_builtins(record, enc_hook=_json_value)))


def indented(value: Any) -> bytes:
    """Plain values as JSON for people to read, as a manifest is."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def plain(value: Any) -> Any:
    """The value with JSON's types, as it is read back: mappings become dicts, tuples lists."""
    return json.loads(encode(value))


def _as_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_as_utf8(key): _as_utf8(child) for key, child in value.items()}
    return [_as_utf8(child) for child in value] if isinstance(value, list | tuple) else value


def invalid_record(record: Any) -> str | None:
    """Why a record could not be read back, or None: plugins may put any value into it."""
    try:
        # Bytes in place of text would become base64 in JSON, and be read back as a text.
        values = msgspec.to_builtins(
            record, builtin_types=_BYTES, str_keys=True, enc_hook=_json_value
        )
        msgspec.convert(values, type(record))
        msgspec.json.decode(encode(record), type=type(record))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        return str(error)
    return None


def unreadable(path: Path, line: int | None, error: Exception) -> InputError:
    """The error for a stored line, or a whole file, that can't be read."""
    message = str(error)
    where = None
    if " - at `$." in message:
        message, _, rest = message.partition(" - at `$.")
        where = rest.rstrip("`")
    what = "file" if line is None else "line"
    hint = f"the {what} is damaged, or was written by another version of ale"
    return InputError.of(message, file=str(path), line=line, path=where, hint=hint)


def cannot_read(path: Path, error: OSError) -> InputError:
    """The error for a stored file that can't be read at all."""
    return InputError.of(f"can't be read: {error.strerror or error}", file=str(path))
