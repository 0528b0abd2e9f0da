"""``sandbox: {type: auto}``: the usable sandbox with the highest priority."""

import os
from collections.abc import Callable, Collection
from typing import Any

import attrs

from ale._config.model import AutoChoice
from ale._registry import Registration, Registry
from ale.errors import AleError, PluginError
from ale.plugin import BuildContext
from ale.types import Capabilities


def choose_sandbox(
    registry: Registry,
    given: Collection[str],
    require: Collection[str],
    options_of: Callable[[Registration], Any],
) -> tuple[Registration, AutoChoice]:
    """The sandbox for this machine and this config.

    Args:
        given: names of the options that the config sets.
        require: what it must isolate.
        options_of: the options that the config gives to a candidate; called only with `require`.

    A candidate without an option that the config sets, and that another candidate has, is not
    chosen: ``network: false`` is no sandbox that has no such switch.

    Raises:
        PluginError: none is usable here; names the reason for each, and what would change it.
    """
    candidates = [each for each in registry.registrations("sandbox") if each.component.priority > 0]
    known = {name for each in candidates for name in option_names(each)}
    skipped: list[str] = []
    remedies: list[str] = []
    for candidate in sorted(candidates, key=lambda each: -each.component.priority):
        reason, refusal, remedy = _check(candidate, [name for name in given if name in known])
        if refusal is None and require:
            refusal = _refusal_by_isolation(candidate, require, options_of(candidate))
        if refusal is None:
            return candidate, AutoChoice(reason=reason, skipped=tuple(skipped))
        skipped.append(f"{candidate.component.name}: {refusal}")
        remedies += [f"for {candidate.component.name}: {remedy}"] if remedy else []
    advice = f"; to change that, {'; or '.join(remedies)}" if remedies else ""
    why = "; ".join(skipped) or "none is installed"
    raise PluginError(f"no sandbox is usable here; {why}{advice}")


def option_names(candidate: Registration) -> set[str]:
    """The names of a component's options."""
    cls = candidate.component.options
    return set() if cls is None else {each.name for each in attrs.fields(cls)}


def _check(candidate: Registration, given: Collection[str]) -> tuple[str, str | None, str | None]:
    """The probe's result; and why the candidate can't be used with what would change it, if so."""
    missing = [name for name in candidate.component.auto_needs if name not in given]
    if missing:
        return "", f"sandbox.{missing[0]} is not given", None
    lacking = [name for name in given if name not in option_names(candidate)]
    if lacking:
        return "", f"it has no option '{lacking[0]}'", None
    found = candidate.probe()
    if found is None:
        return candidate.component.summary, None, None
    return found.reason, None if found.usable else found.reason, found.remedy


def _refusal_by_isolation(
    candidate: Registration, require: Collection[str], options: Any
) -> str | None:
    # Capabilities can depend on options and machine, so the backend is built; it starts nothing.
    try:
        backend = candidate.component.build(options, BuildContext(environ=dict(os.environ)))
    except (AleError, ImportError) as error:
        return str(error)
    found = getattr(backend, "capabilities", None)
    if not isinstance(found, Capabilities):
        return f"its capabilities are {found!r}"
    return refusal(not_isolated(found), require)


def refusal(lacking: Collection[str], require: Collection[str]) -> str | None:
    """``does not isolate the network``, if that is required; None if nothing required is lacking.

    Args:
        lacking: as `not_isolated` returns it.
    """
    missing = [name for name in lacking if name in require]
    return f"does not isolate {listed(missing)}" if missing else None


def not_isolated(capabilities: Capabilities) -> list[str]:
    """Which of network, files and processes a backend does not isolate."""
    isolated = {
        "network": capabilities.network_isolation,
        "files": capabilities.filesystem_isolation,
        "processes": capabilities.process_isolation,
    }
    return [name for name, is_isolated in isolated.items() if not is_isolated]


def listed(names: Collection[str]) -> str:
    """``the network, files or processes``."""
    words = ["the network" if name == "network" else name for name in names]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
