"""Runs and episodes as tables for the terminal."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.text import shorten, size, table
from ale_look.store.archiving import archives_in
from ale_look.store.listing import missing, state, this_host
from ale_look.store.rows import epoch
from ale_look.store.shared import shown_reward, shown_time

_PROMPT = 40
_MODEL = 30


def with_states(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of runs with their `state`, without the database's own numbers."""
    host = this_host()
    return [
        {"run_id": row["run_id"], "state": state(row, host), "n_missing": missing(row, host)}
        | {key: value for key, value in row.items() if key not in ("id", "run_id")}
        for row in rows
    ]


def runs_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each run."""
    if not rows:
        return "no runs"
    lost = any(row["n_missing"] for row in rows)
    contested = any(row["n_contested"] for row in rows)
    columns: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("run", lambda row: row["run_id"]),
        ("state", lambda row: row["state"]),
        ("created", lambda row: shown_time(row["created"])),
        ("model", lambda row: shorten(row["model"], _MODEL)),
        ("episodes", lambda row: str(row["n_episodes"])),
        *([("missing", lambda row: str(row["n_missing"] or ""))] if lost else []),
        ("broken", lambda row: str(row["n_broken"])),
        ("success", lambda row: _share(row["n_succeeded"], row["n_graded"])),
        *([("contested", lambda row: str(row["n_contested"] or ""))] if contested else []),
        ("reward", lambda row: shown_reward(row["mean_reward"])),
        ("tags", lambda row: ",".join(row["tags"])),
    ]
    text = table(
        [name for name, _ in columns],
        [[cell(row) for _, cell in columns] for row in rows],
        right=range(4, len(columns) - 1),
    )
    meaning = [
        *(["missing: episodes that episodes.jsonl lacks"] if lost else []),
        *(["contested: passes that used files the agent changed"] if contested else []),
    ]
    return "\n".join([text, *meaning])


def _share(n: int, of: int) -> str:
    return f"{100 * n / of:.1f}%" if of else "-"


def archives_table(folder: Path) -> str:
    """A line for each archive of a run in a folder."""
    rows = [
        [path.name, shown_time(epoch(str(manifest.get("created", "")))), size(path.stat().st_size)]
        for path, manifest in archives_in(folder)
    ]
    return table(["archive", "created", "size"], rows, right=(2,)) if rows else "no archives"


def episodes_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each episode."""
    if not rows:
        return "no episodes"
    header = ["run", "episode", "reward", "turns", "errors", "model", "started", "prompt"]
    return table(
        header,
        [
            [
                row["run_id"],
                row["episode_id"],
                shown_reward(row["reward"]),
                str(row["n_turns"]),
                str(row["n_errors"]),
                row["model"].rpartition("/")[2],
                shown_time(row["started"]),
                shorten(row["prompt"], _PROMPT),
            ]
            for row in rows
        ],
        right=(2, 3, 4),
    )
