"""Keep secrets out of everything that is written."""

import re
from collections.abc import Iterable, Mapping

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_SHORTEST = 8
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


def _forms(value: str) -> Iterable[bytes]:
    """A value as it stands in text and inside a JSON string."""
    import msgspec

    yield value.encode("utf-8", "surrogateescape")
    printable = value.encode("utf-8", "replace").decode()
    yield msgspec.json.encode(printable)[1:-1]
