"""A prepared run in words, for ``ale check`` and ``ale run --dry-run``."""

from collections.abc import Iterator
from typing import Any

import attrs

from ale._config import Selected
from ale._run.loop import planned_episodes
from ale._run.plan import tasks_per_step
from ale._run.start import Prepared
from ale.text import shorten

_SECTIONS = ("tasks", "sandbox", "llm", "agent", "chunker", "credit", "starts", "trainer")


def describe_plan(ready: Prepared) -> str:
    """Parts, tasks and how many episodes there will be."""
    config = ready.config
    lines = [_line(section, getattr(config, section)) for section in _SECTIONS]
    lines += [_line("observer", observer) for observer in config.observers]
    run, evaluation, tasks = config.run, config.evaluation, ready.tasks["train"]
    drawn = tasks_per_step(tasks, run)
    planned = planned_episodes(config, ready.tasks)
    total = "as many as its starts say" if planned is None else str(sum(planned.values()))
    lines += [
        "",
        f"{len(tasks)} tasks; {run.steps} step(s) of {drawn} task(s) x {run.rollouts} "
        f"rollout(s): {total} episodes, {run.concurrency} at once, seed {run.seed}",
    ]
    if evaluation is not None:
        n, options = len(ready.tasks["evaluation"]), evaluation.options
        lines.append(f"evaluated every {options.every} step(s) on {n} task(s) x {options.rollouts}")
    lines.append(f"into {ready.path}")
    return "\n".join(lines)


def _line(section: str, part: Selected | None) -> str:
    if part is None:
        return f"{section:<9} -"
    shown = ", ".join(f"{name}={value}" for name, value in _chosen(part.options))
    return f"{section:<9} {part.name:<14} {shorten(shown, 100)}".rstrip()


def _chosen(options: Any) -> Iterator[tuple[str, Any]]:
    """The options that are not at their defaults: what somebody wrote down."""
    if options is None:
        return
    for field in attrs.fields(type(options)):
        default = field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default = default.factory()
        value = getattr(options, field.name)
        if value != default:
            yield field.name, value
