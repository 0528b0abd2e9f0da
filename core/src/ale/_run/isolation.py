"""Compare the isolation that a config and its tasks ask for with what the sandbox provides."""

from ale._config import RunConfig
from ale._config.auto import capabilities_of, listed, not_isolated
from ale._run.parts import Tasks
from ale.errors import InputError
from ale.protocols import SandboxBackend
from ale.text import counted


def isolation_notes(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> list[str]:
    """What the user should know about the chosen sandbox before the run, one line each.

    Raises:
        InputError: the sandbox does not provide the isolation that ``sandbox.require`` names.
        PluginError: it has no capabilities.
    """
    capabilities = capabilities_of(config.sandbox.registration, backend)
    lacking = not_isolated(capabilities)
    missing = [name for name in lacking if name in config.require]
    name = config.sandbox.name
    if missing:
        message = f"sandbox '{name}' does not isolate {listed(missing)}"
        raise InputError.of(message, path="sandbox.require")
    notes = _auto_notes(config, lacking)
    if not capabilities.network_isolation:
        notes += _network_notes(config, tasks)
    return notes


def _auto_notes(config: RunConfig, lacking: list[str]) -> list[str]:
    chosen, name = config.sandbox.auto, config.sandbox.name
    if chosen is None:
        return []
    if not lacking:
        return [f"auto: using {name} ({chosen.reason})"]
    skipped = "; ".join(chosen.skipped) or "no other sandbox is installed"
    return [
        f"auto: using {name}, which does not isolate {listed(lacking)} from this machine: {skipped}"
    ]


def _network_notes(config: RunConfig, tasks: Tasks) -> list[str]:
    asking = [
        ready.task.id
        for split in tasks.values()
        for ready in split
        if any(task.constraints.network is False for task in (ready.task, *ready.task.steps))
    ]
    sources = ["the config"] if getattr(config.sandbox.options, "network", None) is False else []
    if asking:
        sources.append(f"{counted(len(asking), 'task')} ({asking[0]}{', ...' * (len(asking) > 1)})")
    if not sources:
        return []
    return [
        f"network: false, set by {' and '.join(sources)}, is not enforced: sandbox "
        f"'{config.sandbox.name}' does not isolate the network"
    ]
