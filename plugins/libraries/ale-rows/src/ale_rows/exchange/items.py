"""Read the items of an imported file."""

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ale.errors import InputError
from ale.strict import decoded
from ale_rows.exchange.known import known_file
from ale_rows.reading import opened

Item = Mapping[str, Any]


class LeftOutError(Exception):
    """An item can't become a row; the message is the reason that the report counts."""


def items(path: Path) -> Iterator[tuple[int, Item | LeftOutError]]:
    """The objects of a file, with the number of their line, or their position in an array.

    Lines are read one at a time; a file with one array or one object is read whole. In place of a
    line that is no object, as where a download broke off, is the reason.

    Raises:
        InputError: it does not exist, is known to be of another kind, or is read whole and no JSON.
    """
    with opened(path) as file:
        begin = file.read(len(codecs.BOM_UTF8))
        if what := known_file(path, begin):
            raise InputError.of(what[0], file=str(path), hint=what[1])
        if begin != codecs.BOM_UTF8:
            file.seek(0)
        found = enumerate(file, 1) if path.suffix == ".jsonl" else enumerate(_whole(file, path), 1)
        for number, item in found:
            if not isinstance(item, bytes):
                yield number, _object(item)
            elif not item.isspace():
                yield number, _decoded(item)


def _whole(file: BinaryIO, path: Path) -> Iterable[Any]:
    try:
        whole = msgspec.json.decode(decoded(file.read(), path))
    except msgspec.MsgspecError as error:
        message = f"{error}; a file of JSON lines is named .jsonl"
        raise InputError.of(message, file=str(path)) from None
    return whole if isinstance(whole, list) else [whole]


def _decoded(line: bytes) -> Item | LeftOutError:
    try:
        return _object(msgspec.json.decode(line.decode("utf-8")))
    except UnicodeDecodeError:
        return LeftOutError("a line that is not UTF-8")
    except (msgspec.MsgspecError, RecursionError):
        return LeftOutError("a line that is not JSON: it is damaged or was edited")


def _object(item: Any) -> Item | LeftOutError:
    return item if isinstance(item, dict) else LeftOutError("expected an object")


def plain_text(content: Any) -> str:
    """The text of a message's content: text, nothing, or parts that are all text.

    Raises:
        LeftOutError: it has images, audio or files.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise LeftOutError("a content that is neither text nor a list of parts")
    return "".join(map(_text_of, content))


def _text_of(part: Any) -> str:
    """A part of text; its text is the ``value`` in files of LLaMA-Factory."""
    if not isinstance(part, Mapping):
        raise LeftOutError("a part of a content that is not an object")
    kind = part.get("type", "text")
    text = part.get("text", part.get("value"))
    if kind in _TEXTS and isinstance(text, str):
        return text
    if any(name in str(kind) for name in ("image", "audio", "video", "file")):
        raise LeftOutError(_MEDIA)
    raise LeftOutError(f"a part of a content of the type '{str(kind)[:_SHOWN]}', which is not read")


_TEXTS = ("text", "input_text", "output_text")
_MEDIA = "images, audio or files, which rows can't hold"
_SHOWN = 40


def listed(item: Item, key: str) -> Sequence[Any]:
    """The list under a key.

    Raises:
        LeftOutError: there is no list under this key.
    """
    found = item.get(key)
    if not isinstance(found, list):
        raise LeftOutError(f"no list '{key}' in it")
    return found


JUDGED = ("label", "kto_tag")
"""Keys that say whether an answer is one to imitate, of TRL and of LLaMA-Factory."""
WEIGHTS = ("weight", "loss_weight", "train", "training")
"""Keys of a message that say whether to train on it."""
_MEDIA_KEYS = ("images", "image", "videos", "video", "audios", "audio")


def refuse_unheld(item: Item) -> None:
    """Refuse an item that a row can't hold with its meaning.

    Raises:
        LeftOutError: its answer is one to avoid, it weighs less or more than others, or it has
            images.
    """
    for key in JUDGED:
        good = item.get(key)
        if good is None:
            continue
        if good in (False, 0):
            raise LeftOutError(f"a rejected answer ('{key}' is false), which is not to be imitated")
        if good not in (True, 1):
            raise LeftOutError(f"'{key}' is neither true nor false")
    for key in WEIGHTS[:2]:
        _is_learned(item.get(key, 1), key, fewest=1)
    if any(item.get(key) for key in _MEDIA_KEYS):
        raise LeftOutError(_MEDIA)


def learns(message: Item) -> bool:
    """Is this answer to be trained on?

    Raises:
        LeftOutError: somewhat.
    """
    return all(_is_learned(message.get(key, 1), key) for key in WEIGHTS)


def _is_learned(weight: Any, key: str, *, fewest: int = 0) -> bool:
    if weight is None or weight == 1:
        return True
    if weight == 0 and fewest == 0:
        return False
    expected = "0 and 1" if fewest == 0 else "1"
    raise LeftOutError(f"a '{key}' other than {expected}, which rows can't hold")


def unread(item: Item, known: Iterable[str], below: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """The keys of an item that are not read, and those of its messages.

    Args:
        known: keys that are read.
        below: keys of messages that are read, by the key of their list.
    """
    yield from (f"'{key[:_SHOWN]}'" for key in item.keys() - {*known, *JUDGED, *WEIGHTS[:2]})
    for name, keys in below.items():
        found = item.get(name)
        messages = found if isinstance(found, list) else [found]
        maps = (message for message in messages if isinstance(message, Mapping))
        every = set(chain.from_iterable(maps)) - {*keys, *WEIGHTS}
        yield from (f"'{key[:_SHOWN]}' of '{name}'" for key in every)
