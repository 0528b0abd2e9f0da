"""The run directory: append, read, resume. The only source of a run's state."""

from ale._store.directory import RunDirectory, RunReader
from ale._store.index import Key
from ale._store.redact import Redactor

__all__ = ["Key", "Redactor", "RunDirectory", "RunReader"]
