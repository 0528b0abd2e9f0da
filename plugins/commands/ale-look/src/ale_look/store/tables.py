"""Runs and episodes as tables for the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.text import shorten, size, table
from ale_look.store.archiving import archives_in
from ale_look.store.listing import state, this_host
from ale_look.store.rows import epoch
from ale_look.store.shared import shown_reward, shown_time

_PROMPT = 40


def with_states(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of runs with their `state`, without the database's own numbers."""
    host = this_host()
    return [
        {"run_id": row["run_id"], "state": state(row, host)}
        | {key: value for key, value in row.items() if key not in ("id", "run_id")}
        for row in rows
    ]


def runs_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each run."""
    if not rows:
        return "no runs"
    header = ["run", "state", "created", "episodes", "broken", "success", "reward", "tags"]
    return table(
        header,
        [
            [
                row["run_id"],
                row["state"],
                shown_time(row["created"]),
                str(row["n_episodes"]),
                str(row["n_broken"]),
                _share(row["n_succeeded"], row["n_graded"]),
                shown_reward(row["mean_reward"]),
                ",".join(row["tags"]),
            ]
            for row in rows
        ],
        right=(3, 4, 5, 6),
    )


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
