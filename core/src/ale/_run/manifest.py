"""The facts in a run's manifest, and the changes of its config that a resume may make."""

import copy
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
from attrs import frozen

import ale
from ale._config import RunConfig, Selected
from ale._registry import Registry
from ale._store import RunReader
from ale._store.codec import plain
from ale.errors import Problem


def host_facts() -> dict[str, Any]:
    """The facts about this machine that a manifest has."""
    return {
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }


def versions(registry: Registry) -> dict[str, str]:
    """The version of the core and of each plugin package, by distribution."""
    found = {package.distribution: package.version for package in registry.packages}
    return {"ale-core": ale.__version__, **dict(sorted(found.items()))}


def changed_versions(manifest: Mapping[str, Any], registry: Registry) -> str:
    """Packages whose installed version differs from the manifest; empty if there are none.

    Returns:
        Text such as ``ale-core 0.1.0 -> 0.2.0, ale-credit 1.0 -> 1.1``.
    """
    now = versions(registry)
    return ", ".join(
        f"{name} {before} -> {now[name]}"
        for name, before in manifest.get("versions", {}).items()
        if name in now and now[name] != before
    )


def run_id_for(name: str, clock: float, random_id: str) -> str:
    """A run's id: start time, some random letters, name."""
    stamp = datetime.fromtimestamp(clock, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{random_id[:4]}-{name}"


_WHOLE = ("executor", "launch")
"""Sections that say where episodes and processes run."""
FOR_THIS_TIME = ("run.concurrency", "run.preflight", "run.stop_after_broken")
"""Keys that flags set for one start alone: ``-n`` and ``--no-checks``."""
_STEPS = "run.steps"
_SHOWN = 20
_WIDTH = 40


@frozen(kw_only=True)
class Change:
    """One value of a config that differs from the saved one."""

    path: str
    before: Any
    now: Any
    allowed: bool
    """The results that are stored do not depend on it."""


def has_results(reader: RunReader) -> bool:
    """Does a stored run have any graded episode?"""
    index = reader.index()
    return index.broken() < len(index)


def changes(saved: RunConfig, now: RunConfig) -> list[Change]:
    """The values in which a config differs from that of a stored run."""
    return [
        Change(path=path, before=old, now=new, allowed=_allowed(now, path, old, new))
        for path, old, new in _different(plain(saved.resolved), plain(now.resolved))
    ]


def with_changes(saved: RunConfig, made: Sequence[Change]) -> dict[str, Any]:
    """The plain values of the saved config with some changes."""
    config: dict[str, Any] = copy.deepcopy(plain(saved.resolved))
    for change in made:
        section = config
        *above, key = change.path.split(".")
        for each in above:
            section = section[each]
        section[key] = change.now
    return config


def refused(saved: RunConfig, made: Sequence[Change], *, graded: bool) -> list[Problem]:
    """A problem for each change that a resume must not make.

    Args:
        graded: the run has graded episodes.
    """
    can = ", ".join([*_changeable(saved)][:_SHOWN])
    hint = "start a new run with it: the episodes that are stored were sampled without it"
    if not graded:
        hint = "start a new run with it: no episode of this one was graded"

    def problem(change: Change) -> Problem:
        if change.path == _STEPS:
            return Problem(
                message=f"a resume can't lower it from {change.before} to {change.now}",
                file="--set",
                path=change.path,
                expected=f"more than {change.before}",
                hint="what has been learned stays learned; 'ale steer RUN stop-after-step' ends a "
                "run that is running",
            )
        return Problem(
            message=f"a resume can't change this value, {change.before!r}, to {change.now!r}",
            file="--set",
            path=change.path,
            expected=f"what does not enter results: {can}",
            hint=hint,
        )

    return [problem(change) for change in made if not change.allowed]


def described(change: Change) -> str:
    """A change in a line."""
    return f"{change.path}: {_short(change.now)} (saved: {_short(change.before)})"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def _different(before: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if before == now:
        return
    if isinstance(before, dict) and isinstance(now, dict) and path not in _WHOLE:
        for key in {**before, **now}:
            inner = f"{path}.{key}" if path else key
            yield from _different(before.get(key), now.get(key), inner)
    else:
        yield path, before, now


def _allowed(config: RunConfig, path: str, before: Any, now: Any) -> bool:
    section, *keys = path.split(".")
    if section in _WHOLE:
        return True
    if path == _STEPS:  # what has been learned stays learned
        return bool(now > before)
    options = _options(config, section)
    for key in keys:
        field = attrs.fields_dict(type(options)).get(key) if attrs.has(type(options)) else None
        if field is None:
            return False
        if field.metadata.get("changeable", False):
            return True
        options = getattr(options, key)
    return False


def _options(config: RunConfig, section: str) -> Any:
    part = getattr(config, section, None)
    return part.options if isinstance(part, Selected) else part if section == "run" else None


def _changeable(config: RunConfig) -> Iterator[str]:
    """The keys that a resume may change, those of components first."""
    for section in ("llm", "trainer", "run"):
        options = _options(config, section)
        fields: Mapping[str, Any] = (
            attrs.fields_dict(type(options)) if attrs.has(type(options)) else {}
        )
        for name, field in fields.items():
            if field.metadata.get("changeable", False):
                yield f"{section}.{name}"
    yield from _WHOLE
