"""The run directory: append, read, resume. It is the truth about a run."""

from ale._store.directory import RunDirectory, RunReader
from ale._store.index import Key, StoredEpisode
from ale._store.redact import Redactor

__all__ = ["Key", "Redactor", "RunDirectory", "RunReader", "StoredEpisode"]
