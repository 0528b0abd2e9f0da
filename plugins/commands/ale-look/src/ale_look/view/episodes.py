"""Episodes as the page reads them: the list of a run, and what its `readable` turns leave out."""

from collections.abc import Sequence
from typing import Any

from ale.types import Episode
from ale_look.inspect.kinds import kind_name, kind_of
from ale_look.inspect.report.gathering import Head


def listed(rows: Sequence[Head], reading: int = 1, known: int = 0) -> dict[str, Any]:
    """A list of episodes, as columns.

    Args:
        rows: those after the first `known`.
        reading: of the list; another reading has another list.
    """
    columns = {name: [getattr(row, name) for row in rows] for name in Head._fields}
    return {"reading": reading, "since": known, "columns": columns}


def about(episode: Episode, goal: str, *, learned_in: int | None, valued: bool) -> dict[str, Any]:
    """Facts about an episode that `readable` leaves out.

    Args:
        learned_in: the step that learned from it.
        valued: values of its states may have been measured.
    """
    models = dict.fromkeys(t.completion.model for t in episode.turns if t.completion.model)
    trained = episode.split == "train"
    return {
        "task": episode.task_id,
        "goal": goal,
        "kind": kind_name(kind_of(episode)),
        "step": episode.step,
        "learned_in": learned_in if trained else None,
        "rollout": episode.rollout,
        "models": [*models],
        "valued": trained and valued,
        "damaged": episode.damaged,
        "evidence": [
            {"contested": score.contested, "timed_out": score.timed_out, "answer": score.answer}
            for score in episode.scores
        ],
    }
