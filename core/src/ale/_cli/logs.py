"""Python's logging, with secrets masked in the messages of SDKs."""

import logging
import os


class _Masking(logging.Formatter):
    _redactor: object = None

    def format(self, record: logging.LogRecord) -> str:
        from ale._store.redact import Redactor

        if self._redactor is None:
            self._redactor = Redactor(os.environ)
        assert isinstance(self._redactor, Redactor)
        text = super().format(record)
        return self._redactor.scrub(text.encode("utf-8", "replace")).decode("utf-8", "replace")


def guard_logs() -> None:
    """Log warnings and errors to stderr, masked; no debug or info messages of SDKs."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Masking("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
