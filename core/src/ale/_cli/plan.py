"""A prepared run as text, for ``ale check`` and ``ale run --dry-run``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from ale._config.describe import default_of
from ale._config.load import part_values
from ale._config.model import PARTS, Selected
from ale._run.plan import planned_episodes, tasks_per_step
from ale._run.start import Prepared
from ale.text import counted, sampling_name

_MARGIN = 10


def describe_plan(ready: Prepared, *, defaults: bool = False) -> str:
    """The parts with their options, the tasks and the number of episodes.

    Args:
        ready: the checked run.
        defaults: list the options that have their default values too, a line each.
    """
    config = ready.config
    parts = [(section, getattr(config, section)) for section in PARTS]
    parts += [("middleware", each) for each in config.middleware]
    parts += [("scorer", each) for each in config.scorers]
    parts += [("observer", observer) for observer in config.observers]
    if config.evaluation is not None:
        parts.append(("evaluation", config.evaluation.tasks))
    lines: list[str] = []
    for section, part in parts:
        if part is None:
            lines.append(f"{section:<9} -")
            continue
        lines += _part(f"{section:<9} {part.name:<14}", part.options, defaults)
    if config.require:
        lines.append(f"{'':<{_MARGIN}}require={_text(config.require)}")
    if defaults:
        lines += _part(f"{'run':<9} {'':<14}", config.run, defaults)
    return "\n".join([*lines, "", *_work(ready)])


def _work(ready: Prepared) -> Iterator[str]:
    run, evaluation, tasks = ready.config.run, ready.config.evaluation, ready.tasks["train"]
    sampled = tasks_per_step(tasks, run)
    planned = planned_episodes(ready.config, ready.tasks)
    total = (
        "number of episodes decided during the run"
        if planned is None
        else counted(sum(planned.values()), "episode")
    )
    yield (
        f"{counted(len(tasks), 'task')}; {counted(run.steps, 'step')} of "
        f"{counted(sampled, 'task')} x {counted(run.rollouts, 'rollout')}: {total}, "
        f"{_at_once(run.concurrency)} at the same time, seed {run.seed}"
    )
    if evaluation is not None:
        n, options = len(ready.tasks["evaluation"]), evaluation.options
        names = " and ".join(map(sampling_name, ready.config.evaluation_temperatures))
        yield (
            f"evaluated every {counted(options.every, 'step')} on {counted(n, 'task')} "
            f"x {counted(options.rollouts, 'rollout')}, {names}"
        )
    yield f"run directory: {ready.path}"


def _at_once(concurrency: int | str) -> str:
    return "as many as are worth it" if concurrency == "auto" else f"at most {concurrency}"


def _part(head: str, options: Any, defaults: bool) -> Iterator[str]:
    values = list(_options(options))
    given = [f"{name}={value}" for name, value, is_default in values if not is_default]
    yield f"{head} {', '.join(given)}".rstrip()
    if defaults:
        yield from (
            f"{'':<{_MARGIN}}{name}={value} (default)"
            for name, value, is_default in values
            if is_default
        )


def _options(options: Any) -> Iterator[tuple[str, str, bool]]:
    """Name, value as text, and whether that is the default."""
    if options is None:
        return
    for field in attrs.fields(type(options)):
        value = getattr(options, field.name)
        yield field.name, _text(value), value == default_of(field)


def _text(value: Any) -> str:
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Selected):  # an option that selects a component
        given = {name: each for name, each in part_values(value).items() if each is not None}
        return value.name if len(given) == 1 else {**given, "type": value.name}
    return (
        str(value) if isinstance(value, Path) or not attrs.has(type(value)) else attrs.asdict(value)
    )
