"""Notify the observers; a failing one is reported and dropped, and the run continues."""

import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pluggy

from ale import hookspecs
from ale._registry import Registry
from ale.errors import AleError, nearest
from ale.plugin import PROJECT

_EVENTS = [
    name
    for name, hook in vars(hookspecs).items()
    if name.startswith("ale_") and "event" in inspect.signature(hook).parameters
]


def observer_errors(product: object) -> list[str]:
    """Mistakes in an observer's hooks that would keep events from reaching it."""
    errors = []
    for name in (name for name in dir(product) if name.startswith("ale_")):
        method = getattr(product, name)
        if not hasattr(method, f"{PROJECT}_impl"):
            errors.append(f"{name} is not marked with hookimpl")
        elif name not in _EVENTS:
            hint = nearest(name, _EVENTS)
            errors.append(f"{name} is not an event hook" + (f"; {hint}" if hint else ""))
        elif inspect.iscoroutinefunction(method):
            errors.append(f"{name} is a coroutine function, which would never be awaited")
        elif set(inspect.signature(method).parameters) - {"event"}:
            errors.append(f"{name} takes {inspect.signature(method)}, expected (event)")
    if not errors and not _has_event_hook(product):
        errors.append(f"it has no event hook (hookimpl) of {', '.join(_EVENTS)}")
    return errors


def _has_event_hook(product: object) -> bool:
    """Has it an event hook, whatever its method is called (``hookimpl(specname=...)``)?"""
    manager = pluggy.PluginManager(PROJECT)
    manager.register(product)
    return any(caller.name in _EVENTS for caller in manager.get_hookcallers(product) or ())


class Observers:
    """The observers of one run: those in the config, and packages with their own event hooks."""

    def __init__(
        self,
        products: Sequence[tuple[str, object]],
        registry: Registry,
        report: Callable[[str], None],
    ) -> None:
        """Register the observers.

        Args:
            products: those of the config, each after its name.
            report: called with a message, once for each observer that fails.
        """
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._report = report
        self._names: dict[int, str] = {}
        for package in registry.packages:
            if any(hasattr(package.module, event) for event in _EVENTS):
                self._manager.register(package.module)
                self._names[id(package.module)] = package.distribution
        for name, product in products:
            self._manager.register(product)
            self._names[id(product)] = name

    def notify(self, hook: str, event: Any) -> None:
        """Call an event hook of each observer."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            try:
                # As in pluggy, an implementation may take fewer arguments than the hook has.
                implementation.function(*([event] if implementation.argnames else []))
            except Exception as error:
                self._manager.unregister(implementation.plugin)
                name = self._names[id(implementation.plugin)]
                self._report(f"observer '{name}' failed in {hook} and was dropped:{_cause(error)}")


def _cause(error: Exception) -> str:
    """The error, with its traceback unless it says by itself what is wrong outside the code."""
    if isinstance(error, AleError | OSError):
        return f" {type(error).__name__}: {error}"
    return f"\n{traceback.format_exc()}"
