"""Where the servers of this machine are recorded, and those of all machines are found."""

import os
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import AleError
from ale_nats_client.commands import arguments
from ale_nats_client.options import ServerOptions
from ale_servers.places import registry_at
from ale_servers.records import Entry
from ale_servers.registry import Writable, file_name


@frozen(kw_only=True)
class Place:
    """A folder with logs and processes of this machine, and a registry."""

    folder: Path
    registry: Writable
    register: Sequence[str]
    """Options with which `ale serve` enters a server into the registry."""

    @classmethod
    def of(cls, folder: Path, nats: ServerOptions | None = None) -> "Place":
        """The folder is the registry, too, where there is none in NATS."""
        if nats is None:
            register = ["--register", str(folder)]
        else:
            register = ["--register", nats.url, *arguments(nats)]
        return cls(
            folder=folder, registry=registry_at(nats or folder, os.environ), register=register
        )

    def entries(self) -> Sequence[Entry]:
        """Servers in the registry.

        Raises:
            AleError: NATS can't be reached.
        """
        try:
            return self.registry.entries()
        except ConnectionError as error:
            raise AleError(str(error)) from error

    def log(self, name: str) -> Path:
        """Where a server's output is."""
        return self.folder / f"{file_name(name)}.log"

    def record(self, name: str) -> Path:
        """The file with the process that keeps a server running."""
        return self.folder / f"{file_name(name)}.process"
