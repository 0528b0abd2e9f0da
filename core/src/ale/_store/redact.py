"""Mask secrets in everything that is written."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

from ale import types
from ale._config.environment import SHORTEST, looks_secret, overriding

_DEPTH = 2
MASK = "***"

# Words of the record formats are never masked, even where a secret is such a word or a part of it.
_RESERVED = {
    word
    for choice in (types.FinishReason, types.Role, types.Stage, types.StopReason)
    for word in get_args(choice)
}


class Redactor:
    """Replaces the values of secret-looking environment variables by ``***``.

    Short values are not masked: replacing every ``1`` would damage the records and hide nothing.
    """

    def __init__(self, environ: Mapping[str, str], extra: Iterable[str] = ()) -> None:
        """Collect the secrets.

        Args:
            environ: variables are secret by the words in their names (``KEY``, ``TOKEN``, ...),
                but for those that override a config: ``ALE_EXECUTOR__TLS_KEY`` is its path;
                of a URL with a password, the password is secret whatever the variable's name.
            extra: names of further secret variables.
        """
        named, overrides = set(extra), overriding(environ)
        self._names: dict[str, str] = {}
        for name, value in environ.items():
            listed = name not in overrides and looks_secret(name, value)
            for secret in _secrets(value, listed=listed or name in named):
                for form in _forms(secret):
                    self._names[form] = name
        # Longest first: a secret that contains another must be masked as a whole.
        self._forms = sorted(self._names, key=len, reverse=True)
        self._bytes = [(form, form.encode("utf-8", "surrogateescape")) for form in self._forms]

    def scrub(self, data: bytes) -> bytes:
        """Text without any secret in it."""
        for _, form in self._bytes:
            if form in data:
                data = data.replace(form, MASK.encode())
        return data

    def scrub_json(self, data: bytes) -> bytes:
        """JSON with the secrets in its strings masked; keys, numbers and structure stay."""
        if not any(form in data for _, form in self._bytes):
            return data
        masked = self._mask(json.loads(data))
        return json.dumps(masked, ensure_ascii=False, separators=(",", ":")).encode()

    def _mask(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._mask(child) for key, child in value.items()}
        if isinstance(value, list):
            return [self._mask(child) for child in value]
        if isinstance(value, str):
            for form in self._forms:
                value = value.replace(form, MASK)
        return value

    def variable_in(self, data: bytes) -> str | None:
        """The name of a variable whose secret is in `data`, or None."""
        return next((self._names[text] for text, form in self._bytes if form in data), None)


def _secrets(value: str, *, listed: bool) -> Iterator[str]:
    reserved = any(value in word for word in _RESERVED)
    if listed and len(value) >= SHORTEST and not reserved:
        yield value
    if "://" in value and "@" in value:
        try:
            password = urlsplit(value).password
        except ValueError:  # not a URL
            return
        if password is not None and len(password) >= SHORTEST:
            yield password


def _forms(value: str) -> Iterator[str]:
    """A value as written in text, in JSON, and in JSON inside JSON (a tool call's arguments)."""
    yield value
    texts = {value.encode("utf-8", "replace").decode()}
    for _ in range(_DEPTH):
        texts = {json.dumps(text, ensure_ascii=a)[1:-1] for text in texts for a in (True, False)}
        yield from texts
