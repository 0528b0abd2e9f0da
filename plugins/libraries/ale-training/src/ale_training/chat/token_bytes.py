"""Tokens as bytes, so that ids become text and each token's position in it is known."""

import codecs
import json
from collections.abc import Sequence
from typing import Any

from attrs import frozen


@frozen
class Text:
    """The text of some ids, and where in it each id starts."""

    text: str
    starts: tuple[int, ...] | None
    """Characters of `text` before each token; a token that starts inside a character has that
    character's index. None where the tokenizer's tokens are not bytes."""


class TokenBytes:
    """The bytes of each token of a tokenizer.

    For byte-level and byte-fallback vocabularies, which all common ones are, the text of a sequence
    is the concatenation of the bytes of its tokens, special tokens included. Others are decoded by
    the tokenizer, without the positions of the tokens.

    Args:
        tokenizer: a fast tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        decoder = json.loads(tokenizer.backend_tokenizer.to_str())["decoder"]
        self._known: dict[int, bytes] = {}
        self._added: dict[int, bytes] = {
            number: token.content.encode()
            for number, token in tokenizer.added_tokens_decoder.items()
        }
        kinds = _kinds(decoder)
        self._byte_level = "ByteLevel" in kinds
        self._fallback = not self._byte_level and "ByteFallback" in kinds

    @property
    def exact(self) -> bool:
        """Are the bytes of single tokens known?"""
        return self._byte_level or self._fallback

    def text(self, ids: Sequence[int]) -> Text:
        """The text of `ids`; bytes that are not valid UTF-8 become U+FFFD."""
        if not self.exact:
            return Text(self._tokenizer.decode(list(ids), skip_special_tokens=False), None)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        starts: list[int] = []
        parts: list[str] = []
        length = 0
        for number in ids:
            starts.append(length)
            part = decode(self.bytes_of(number))
            parts.append(part)
            length += len(part)
        parts.append(decode(b"", True))
        return Text("".join(parts), tuple(starts))

    def bytes_of(self, number: int) -> bytes:
        """The bytes of one token; none for an id that the vocabulary lacks."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._bytes(number)
        return found

    def _bytes(self, number: int) -> bytes:
        added = self._added.get(number)
        if added is not None:
            return added
        token = self._tokenizer.convert_ids_to_tokens(number)
        if token is None:
            return b""
        if self._byte_level:
            return bytes(_BYTES[letter] for letter in token)
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return str(token).replace("\u2581", " ").encode()


def _kinds(decoder: Any) -> set[str]:
    if decoder is None:
        return set()
    inner = [kind for part in decoder.get("decoders", ()) for kind in _kinds(part)]
    return {decoder["type"], *inner}


def _letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the rest from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in plain} | shifted


_BYTES = _letters()
