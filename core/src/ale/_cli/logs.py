"""Python's logging, with secrets masked in the messages of SDKs."""

import logging
import os
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ale._store.redact import Redactor


class _Masking(logging.Formatter):
    @cached_property
    def _redactor(self) -> "Redactor":
        from ale._store.redact import Redactor

        return Redactor(os.environ)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return self._redactor.scrub(text.encode("utf-8", "replace")).decode("utf-8", "replace")


def guard_logs() -> None:
    """Log warnings and errors to stderr, masked; no debug or info messages of SDKs."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Masking("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
