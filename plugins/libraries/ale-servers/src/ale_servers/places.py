"""Find a registry by its name in a config or on a command line."""

from collections.abc import Mapping
from pathlib import Path

from ale_nats_client.options import ServerOptions
from ale_servers.registry import FolderRegistry, Writable


def registry_at(place: Path | ServerOptions, environ: Mapping[str, str]) -> Writable:
    """The registry in a folder, or in a bucket of NATS: ``nats://HOST:PORT/BUCKET``."""
    if isinstance(place, Path):
        return FolderRegistry(place)
    from ale_servers.nats_registry import NatsRegistry  # late: most callers need none

    return NatsRegistry(place, environ)
