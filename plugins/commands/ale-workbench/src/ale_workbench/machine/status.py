"""Collects what runs and what has run, and prints it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.attempts import mean
from ale.errors import AleError
from ale.processes import Process, processes
from ale.runs import SUCCESS, RunReader, holder, runs_in
from ale.text import counted, number, table

_KINDS = {"ale-proxy/proxy": "proxy", "ale-proxy/bridge": "bridge"}
"""What records a run directory, by its ``llm.type``; all others are runs."""
_RUNNING = ("running", "paused")


def collected(folder: Path, limit: int) -> dict[str, Any]:
    """The state of this machine, as plain values.

    Args:
        folder: of run directories; those of running processes elsewhere are added.
        limit: of runs that don't run.
    """
    running = processes()
    by_directory = {Path(each.directory): each for each in running if each.directory}
    inside = runs_in(folder, lambda _: None)
    top = folder.resolve()
    heads = [_head(path, top, by_directory.get(path)) for path in {*inside, *by_directory}]
    heads.sort(key=lambda each: each["created"], reverse=True)
    runs = list(_limited(heads, limit))
    now = time.time()
    return {
        "runs": [{**run, **_counts(Path(run["directory"]))} for run in runs],
        "hidden_runs": len(heads) - len(runs),
        "processes": [
            {
                "kind": each.kind,
                "pid": each.pid,
                "seconds": round(now - each.started, 1),
                "directory": each.directory,
                "url": each.url,
                **each.facts,
            }
            for each in running
        ],
    }


def _limited(runs: Sequence[dict[str, Any]], limit: int) -> Iterator[dict[str, Any]]:
    left = limit
    for run in runs:
        if run["state"] in _RUNNING:
            yield run
        elif left:
            left -= 1
            yield run


def _head(path: Path, top: Path, process: Process | None) -> dict[str, Any]:
    """What a run is and how it is, without reading its episodes.

    Its name is its path below the folder `top`, the whole path where it is elsewhere: the runs of a
    validation or an ablation have the names of their parts, which others have too.
    """
    below = path != top and path.is_relative_to(top)
    name = str(path.relative_to(top) if below else path)
    head = {"name": name, "directory": str(path), "kind": "run", "created": ""}
    try:
        reader = RunReader(path)
        manifest, paused = reader.manifest, reader.paused
    except AleError as error:
        return {**head, "state": "unreadable", "problem": str(error)}
    pid, llm = holder(path), (manifest["config"].get("llm") or {}).get("type")
    return {
        **head,
        "kind": _KINDS.get(str(llm), "run") if process is None else process.kind,
        "created": manifest["created"],
        "state": "paused" if paused else _state(pid, manifest.get("outcome")),
        "pid": int(pid) if pid else None,
    }


def _counts(path: Path) -> dict[str, Any]:
    try:
        index = RunReader(path).index()
    except AleError:
        return {}
    rewards = list(index.rewards())
    return {
        "episodes": len(index),
        "graded": len(rewards),
        "broken": index.broken(),
        "succeeded": sum(reward == SUCCESS for reward in rewards),
        "mean_reward": mean(rewards) if rewards else None,
        "step": max(index.steps(), default=None),
    }


def _state(pid: str | None, outcome: Mapping[str, Any] | None) -> str:
    if pid is not None:
        return "running"
    return "interrupted" if outcome is None else str(outcome["outcome"])


def shown(found: Mapping[str, Any]) -> str:
    """It as tables."""
    parts = [_runs(found["runs"]) if found["runs"] else "No runs."]
    if found["hidden_runs"]:
        parts.append(f"and {counted(found['hidden_runs'], 'older run')}: --limit shows more")
    listed = found["processes"]
    parts.append("")
    parts.append(_processes(listed) if listed else "No worker, server, proxy or loop is running.")
    return "\n".join(parts)


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    header = ("run", "kind", "state", "graded", "broken", "mean reward", "step")
    rows = []
    for run in runs:
        if "graded" not in run:
            rows.append((run["name"], "", "unreadable", "", "", "", ""))
            continue
        reward = run["mean_reward"]
        state = f"{run['state']} ({run['pid']})" if run["state"] in _RUNNING else run["state"]
        rows.append(
            (
                run["name"],
                run["kind"],
                state,
                str(run["graded"]),
                str(run["broken"]),
                "-" if reward is None else number(reward),
                "-" if run["step"] is None else str(run["step"]),
            )
        )
    return table(header, rows, right=(3, 4, 5, 6))


def _processes(listed: Sequence[Mapping[str, Any]]) -> str:
    known = ("kind", "pid", "seconds", "directory", "url")
    rows = []
    for each in listed:
        facts = "  ".join(_fact(key, each[key]) for key in each if key not in known)
        where = each["url"] or each["directory"] or "-"
        rows.append((each["kind"], str(each["pid"]), _since(each["seconds"]), where, facts))
    return table(("process", "pid", "for", "where", ""), rows)


def _fact(key: str, value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{key} {text or '-'}"


def _since(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
