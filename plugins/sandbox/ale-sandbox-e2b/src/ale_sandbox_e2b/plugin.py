"""Registers the sandbox ``e2b``. The SDK is imported in `build`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale_sandbox_e2b.options import E2bOptions

_INSTALL = "pip install e2b"
_ADDRESSES = {"api_url": "E2B_API_URL", "sandbox_url": "E2B_SANDBOX_URL"}


def build(options: E2bOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the SDK or a key is missing.
    """
    key = context.environ.get(options.api_key_env)
    if not key:
        raise NotUsableError(f"e2b: {options.api_key_env} is not set")
    try:
        from ale_sandbox_e2b.service import E2bService
    except ModuleNotFoundError as error:
        raise NotUsableError(f"e2b: {error}; {_INSTALL}") from error
    from ale_sandbox_e2b.capabilities import capabilities_of
    from ale_sandboxing.remote.backend import RemoteBackend

    given = {name: context.environ.get(variable) for name, variable in _ADDRESSES.items()}
    place = {"api_key": key, "domain": context.environ.get("E2B_DOMAIN"), **given}
    service = E2bService(options, {name: value for name, value in place.items() if value})
    return RemoteBackend(service, options, capabilities_of(options), context)


def probe() -> Probe:
    """Are the SDK and a key there? The service is not asked."""
    sdk = Probe.of_package("e2b", remedy=_INSTALL)
    if not sdk.usable:
        return sdk
    if not os.environ.get("E2B_API_KEY"):
        return Probe(usable=False, reason="E2B_API_KEY is not set", remedy="export E2B_API_KEY=...")
    return Probe(usable=True, reason=f"{sdk.reason}, E2B_API_KEY is set", facts=sdk.facts)


@hookimpl
def ale_sandboxes() -> Sequence[Component[E2bOptions, SandboxBackend]]:
    """One sandbox: ``e2b``. It costs money, so that `auto` never takes it."""
    return [
        Component(
            "e2b",
            "ale_sandbox_e2b.options:E2bOptions",
            build,
            probe=probe,
            summary="A remote sandbox of E2B, a virtual machine, per task.",
        )
    ]
