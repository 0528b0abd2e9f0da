"""Read the items of an imported file."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ale.errors import InputError
from ale_rows.reading import damaged, opened

Item = Mapping[str, Any]


class LeftOutError(Exception):
    """An item can't become a row; the message is the reason that the report counts."""


def items(path: Path) -> Iterator[tuple[int, Item]]:
    """The objects of a file, with the number of their line, or their position in an array.

    Lines are read one at a time; a file with one array or one object is read whole.

    Raises:
        InputError: it does not exist, is not JSON, or has items that are not objects.
    """
    if path.suffix == ".jsonl":
        yield from _lines(path)
        return
    with opened(path) as file:
        try:
            whole = msgspec.json.decode(file.read())
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            message = f"{error}; a file of JSON lines is named .jsonl"
            raise InputError.of(message, file=str(path)) from None
    for number, item in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield number, _object(item, path, number)


def _lines(path: Path) -> Iterator[tuple[int, Item]]:
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                item = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise damaged(error, path, number) from None
            yield number, _object(item, path, number)


def _object(item: Any, path: Path, number: int) -> Item:
    if isinstance(item, dict):
        return item
    raise InputError.of("expected an object", file=str(path), line=number)


def plain_text(content: Any) -> str:
    """The text of a message's content: text, nothing, or parts that are all text.

    Raises:
        LeftOutError: it has images, audio or files.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(_is_text(part) for part in content):
        return "".join(part["text"] for part in content)
    raise LeftOutError("images, audio or files, which rows can't hold")


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def listed(item: Item, key: str) -> Sequence[Any]:
    """The list under a key.

    Raises:
        LeftOutError: there is no list under this key.
    """
    found = item.get(key)
    if not isinstance(found, list):
        raise LeftOutError(f"no list '{key}' in it")
    return found
