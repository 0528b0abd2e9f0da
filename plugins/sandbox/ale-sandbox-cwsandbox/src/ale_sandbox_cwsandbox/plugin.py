"""Registers the sandbox ``cwsandbox``. The SDK is imported in `build`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale_sandbox_cwsandbox.options import CwSandboxOptions

_INSTALL = "pip install cwsandbox"


def build(options: CwSandboxOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the SDK or a key is missing.
    """
    import logging

    from ale_sandbox_cwsandbox.credentials import auth_of, find

    found = find(options, context.environ)
    try:
        from ale_sandbox_cwsandbox.service import CwService
    except ModuleNotFoundError as error:
        raise NotUsableError(f"cwsandbox: {error}; {_INSTALL}") from error
    from ale_sandbox_cwsandbox.capabilities import capabilities_of
    from ale_sandboxing.remote.backend import RemoteBackend

    for note in found.notes:
        logging.getLogger(__name__).warning("cwsandbox: %s", note)
    service = CwService(options, auth_of(found, options, context.environ))
    return RemoteBackend(service, options, capabilities_of(options, found.notes), context)


def probe() -> Probe:
    """Are the SDK and a key there? The service is not asked."""
    from ale_sandbox_cwsandbox.credentials import find
    from ale_sandbox_cwsandbox.options import CwSandboxOptions

    sdk = Probe.of_package("cwsandbox", remedy=_INSTALL)
    if not sdk.usable:
        return sdk
    try:
        found = find(CwSandboxOptions(), os.environ)
    except NotUsableError as error:
        why = str(error).removeprefix("cwsandbox: ")
        return Probe(usable=False, reason=why, remedy="export CWSANDBOX_API_KEY=...")
    facts = {**sdk.facts, "key": found.variable}
    return Probe(usable=True, reason=f"{sdk.reason}, {found.variable} is set", facts=facts)


@hookimpl
def ale_sandboxes() -> Sequence[Component[CwSandboxOptions, SandboxBackend]]:
    """One sandbox: ``cwsandbox``. It costs money, so that `auto` never takes it."""
    return [
        Component(
            "cwsandbox",
            "ale_sandbox_cwsandbox.options:CwSandboxOptions",
            build,
            probe=probe,
            summary="A remote sandbox of CoreWeave per task.",
        )
    ]
