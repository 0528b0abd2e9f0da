"""Find a registry by its name in a config or on a command line."""

from collections.abc import Mapping
from pathlib import Path

from ale.plugin import Probe
from ale_nats_client.options import ServerOptions
from ale_servers.registry import FolderRegistry, Writable


def registry_at(place: Path | ServerOptions, environ: Mapping[str, str]) -> Writable:
    """The registry in a folder, or in a bucket of NATS: ``nats://HOST:PORT/BUCKET``.

    Raises:
        NotUsableError: NATS's client is not installed.
    """
    if isinstance(place, Path):
        return FolderRegistry(place)
    remedy = 'pip install "nats-py>=2.15,<3"; in a clone: pip install -e ".[nats]"'
    Probe.of_package("nats-py", remedy=remedy).check()
    from ale_servers.nats_registry import NatsRegistry  # late: most callers need none

    return NatsRegistry(place, environ)
