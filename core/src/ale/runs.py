"""Stored runs, for packages that work on what a run left: read it, cut and credit it again.

Nothing is sampled and nothing is written. Whatever is iterated over comes from disk one record at a
time (one group at a time where credit is given), so memory does not grow with the run.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ale._config import load_config
from ale._config.load import select
from ale._config.model import EvaluationOptions, RunOptions
from ale._config.source import lay_over
from ale._registry import Registry
from ale._run.crediting import Crediting
from ale._run.loop import planned_episodes
from ale._run.parts import build
from ale._run.start import Surroundings, check_run
from ale._store import RunReader
from ale._store.codec import encode
from ale._store.diagnosis import Causes, Learning, learning
from ale._store.index import SUCCESS, Index
from ale._store.lines import Lines
from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale.strict import Node, parse_yaml

__all__ = [
    "SUCCESS",
    "Causes",
    "Checked",
    "Crediting",
    "EvaluationOptions",
    "Index",
    "Learning",
    "Lines",
    "Registry",
    "RunOptions",
    "RunReader",
    "apply_overrides",
    "build_choice",
    "check_config",
    "learning",
    "parse_choice",
]


@frozen(kw_only=True)
class Checked:
    """What `ale run` would do with a config."""

    config: Mapping[str, Any]
    """The whole config as plain values, as a run's manifest keeps it: a config again."""
    episodes: int | None
    """Of training and evaluation; None where it depends on what happens."""


def check_config(
    path: Path, registry: Registry, overrides: Sequence[str] = (), format: str | None = None
) -> Checked:
    """Check a config and its tasks as `ale check` does; nothing is started.

    Args:
        overrides: as for `--set`: ``credit.type=grpo``.
        format: as for `--format`: of a file that is not in the project's own.

    Raises:
        InputError: with every problem.
    """
    loaded = load_config(path, registry, overrides, format)
    ready = check_run(loaded, path.stem, Surroundings(registry=registry))
    planned = planned_episodes(loaded, ready.tasks)
    episodes = None if planned is None else sum(planned.values())
    return Checked(config=json.loads(encode(loaded.resolved)), episodes=episodes)


def apply_overrides(node: Node, overrides: Sequence[str]) -> Node:
    """A tree with values such as ``credit.type=grpo`` merged into it, as ``--set`` does.

    Where the ``type`` of a section changes, the other options of the section are dropped.

    Raises:
        InputError: an override is not ``key=value``.
    """
    return lay_over(node, overrides)


def parse_choice(text: str, *, option: str) -> Node:
    """``ipa:gamma=0.9,failure_reward=-1`` as the mapping that a config would have.

    Args:
        text: a component's name; then, after a colon, options as in YAML, with commas between.
        option: where the text comes from, for messages: ``--scheme``.

    Raises:
        InputError: an option is not ``name=value``.
    """
    name, _, rest = text.partition(":")
    entries = {"type": Node(name, option)}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            message = f"expected option=value, found '{pair}'"
            raise InputError([Problem(message=message, file=option)])
        entries[key] = Node(parse_yaml(value, file=option).value, option)
    return Node(dict(entries), option)


def build_choice(
    choice: Node, kind: str, registry: Registry, context: BuildContext | None = None
) -> tuple[str, Any]:
    """The name and the product of the component that ``{type: ..., option: ...}`` picks.

    Args:
        kind: as ``ale plugins`` names it: ``chunker``, ``credit``, ...
        context: default: one of no run, without secrets.

    Raises:
        InputError: no package offers it, an option is wrong, or it can't be built here.
    """
    picked = select(choice, kind, registry, path=kind)
    return picked.name, build(picked, context or BuildContext())
