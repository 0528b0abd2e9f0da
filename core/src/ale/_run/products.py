"""Build components, and check immediately that what they built implements its protocol."""

import traceback
from collections.abc import Mapping
from functools import cache
from inspect import get_annotations
from typing import Any

import attrs

from ale._config import Selected
from ale._run.hooks import observer_errors
from ale.errors import AleError, InputError, Problem
from ale.plugin import BuildContext
from ale.protocols import (
    LLM,
    Agent,
    Chunker,
    CreditScheme,
    Criterion,
    Executor,
    Launcher,
    Middleware,
    Objective,
    SandboxBackend,
    StartScheme,
    TaskSource,
    Trainer,
)
from ale.types import Capabilities

PROTOCOLS: Mapping[str, type] = {
    "tasks": TaskSource,
    "sandbox": SandboxBackend,
    "llm": LLM,
    "agent": Agent,
    "criterion": Criterion,
    "chunker": Chunker,
    "credit": CreditScheme,
    "starts": StartScheme,
    "trainer": Trainer,
    "objective": Objective,
    "executor": Executor,
    "launch": Launcher,
    "middleware": Middleware,
}
"""Protocols by component kind. An observer has no protocol, but hooks of its choice."""


def build(selected: Selected, context: BuildContext) -> Any:
    """Build the component that a config selected.

    Raises:
        InputError: it can't be built with these options on this machine, or what it built does not
            implement the protocol of its kind.
    """
    registration = selected.registration
    part, package = f"{registration.kind} '{selected.name}'", registration.distribution
    try:
        product = registration.component.build(built_options(selected, context), context)
    except InputError:
        raise
    except (AleError, ImportError) as error:
        found = registration.probe()
        hint = None if found is None else found.remedy
        raise InputError.of(f"{part} can't be used: {error}", hint=hint) from error
    except Exception as error:
        message = f"{part} of {package} failed to build:\n{stack_trace(error)}"
        raise InputError.of(message) from error
    if errors := _product_errors(product, registration.kind):
        raise InputError([Problem(message=f"{part} of {package}: {error}") for error in errors])
    return product


def built_options(selected: Selected, context: BuildContext) -> Any:
    """The options of a component, with the product of each component that one of them selects."""
    inner = {name: build(each, context) for name, each in selected.inner.items()}
    return attrs.evolve(selected.options, **inner) if inner else selected.options


def not_pruned(sandbox: str, error: Exception) -> str:
    """A message that a backend could not prune, with a traceback unless the error says why."""
    if isinstance(error, AleError):
        return f"sandbox '{sandbox}' could not prune: {error}"
    return f"sandbox '{sandbox}' could not prune:\n{stack_trace(error)}"


def stack_trace(error: BaseException) -> str:
    """The traceback of an exception as text."""
    return "".join(traceback.format_exception(error)).rstrip()


def _product_errors(product: object, kind: str) -> list[str]:
    if product is None:
        return ["its build returned None"]
    if isinstance(product, type):
        return [f"its build returned the class {product.__qualname__}, not an instance"]
    if kind == "observer":
        return observer_errors(product)
    protocol = PROTOCOLS[kind]
    missing = [name for name in _members(protocol) if not _has(product, name)]
    if missing:
        found = f"an object of type {type(product).__qualname__}, which is no {protocol.__name__}"
        return [f"its build returned {found}: {', '.join(missing)} missing"]
    if isinstance(product, SandboxBackend) and not isinstance(product.capabilities, Capabilities):
        return [
            f"its capabilities are {product.capabilities!r}, expected an ale.types.Capabilities"
        ]
    return []


@cache
def _members(protocol: type) -> list[str]:
    """Public methods and attributes of a protocol class, those of its bases included."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in (*vars(base), *get_annotations(base))}
    return sorted(name for name in names if not name.startswith("_"))


def _has(product: object, name: str) -> bool:
    # The class first: a property must not be computed here.
    return hasattr(type(product), name) or hasattr(product, name)
