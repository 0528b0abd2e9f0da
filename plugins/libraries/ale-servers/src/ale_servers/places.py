"""A registry by the text that names it."""

from pathlib import Path

from ale_servers.registry import FolderRegistry, Writable


def registry_at(place: str) -> Writable:
    """The registry in a folder, or behind ``nats://HOST:PORT/BUCKET``.

    Raises:
        ValueError: such a URL can't be read.
    """
    if "://" in place:
        from ale_servers.nats_registry import NatsRegistry  # late: most need none

        return NatsRegistry(place)
    return FolderRegistry(Path(place))
