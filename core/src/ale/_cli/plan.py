"""A prepared run in words, for ``ale check`` and ``ale run --dry-run``."""

from typing import Any

from ale._cli.text import shorten
from ale._config import Selected
from ale._run.start import Prepared


def describe_plan(ready: Prepared) -> str:
    """Parts, tasks and how many episodes there will be."""
    config = ready.config
    picked: list[tuple[str, Selected | None]] = [
        ("tasks", config.tasks),
        ("sandbox", config.sandbox),
        ("llm", config.llm),
        ("agent", config.agent),
        ("chunker", config.chunker),
        ("credit", config.credit),
        ("trainer", config.trainer),
        *(("observer", observer) for observer in config.observers),
    ]
    lines = [_line(section, part, config.resolved) for section, part in picked]
    run = config.run
    drawn = len(ready.tasks) if run.tasks_per_step is None else run.tasks_per_step
    total = run.steps * drawn * run.rollouts
    lines += [
        "",
        f"{len(ready.tasks)} tasks; {run.steps} step(s) of {drawn} task(s) x {run.rollouts} "
        f"rollout(s): {total} episodes, {run.concurrency} at once, seed {run.seed}",
        f"into {ready.path}",
    ]
    return "\n".join(lines)


def _line(section: str, part: Selected | None, resolved: dict[str, Any]) -> str:
    if part is None:
        return f"{section:<9} -"
    options = resolved.get(section)
    shown = ""
    if isinstance(options, dict):
        shown = ", ".join(f"{key}={value}" for key, value in options.items() if key != "type")
    return f"{section:<9} {part.name:<14} {shorten(shown, 100)}".rstrip()
