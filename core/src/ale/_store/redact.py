"""Keep secrets out of everything that is written."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 8
_DEPTH = 2
MASK = b"***"


class Redactor:
    """Replaces the values of secret-looking environment variables by ``***``.

    Short values are left alone: replacing every ``1`` would spoil the records and hide nothing.
    """

    def __init__(self, environ: Mapping[str, str], extra: Iterable[str] = ()) -> None:
        """Collect the secrets.

        Args:
            environ: its variables count as secret by their name.
            extra: names of variables that a config calls secret, whatever their name.
        """
        named = set(extra)
        values = {
            value
            for name, value in environ.items()
            if len(value) >= _SHORTEST and (name in named or _SECRET_NAME.search(name))
        }
        forms = {form for value in values for form in _forms(value)}
        # Longest first: a secret that contains another must go whole.
        self._forms = sorted(forms, key=len, reverse=True)

    def scrub(self, data: bytes) -> bytes:
        """The same bytes without any secret in them."""
        for form in self._forms:
            if form in data:
                data = data.replace(form, MASK)
        return data


def _forms(value: str) -> Iterator[bytes]:
    """A value as it stands in text, in JSON, and in JSON inside JSON: a tool call's arguments.

    Most secrets look the same in all of them.
    """
    yield value.encode("utf-8", "surrogateescape")
    texts = {value.encode("utf-8", "replace").decode()}
    for _ in range(_DEPTH):
        texts = {json.dumps(text, ensure_ascii=a)[1:-1] for text in texts for a in (True, False)}
        yield from (text.encode() for text in texts)
