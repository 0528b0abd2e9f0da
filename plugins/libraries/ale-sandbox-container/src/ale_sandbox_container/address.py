"""Where a container engine listens. Imports nothing else of this package."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen


@frozen(kw_only=True)
class EngineAddress:
    """Where an engine listens, and how it is asked what it sees of this machine's files."""

    name: str
    url: str
    """``unix://`` or ``tcp://``; others can't be asked."""
    create: str
    """Path of the request that creates a container."""
    using: Callable[[str], Mapping[str, Any]]
    """The body of such a request for a container that can't be created, with a host folder: the
    engine refuses it and names the folder where it is not there, else for another reason."""
