"""Episodes as the page reads them: the list of a run, and what its `readable` turns leave out."""

from collections.abc import Mapping, Sequence
from typing import Any

from ale.runs import located
from ale.types import CreditedEpisode, Episode, ScoredEpisode, StepScore
from ale_look.inspect.calls import turn_chunks
from ale_look.inspect.kinds import Kind, kind_name, kind_of
from ale_look.inspect.report.gathering import Head
from ale_look.inspect.report.reading import TEXT, clipped
from ale_look.inspect.transcript import egress_of
from ale_look.view.branches import branches


def listed(rows: Sequence[Head], reading: int = 1, known: int = 0) -> dict[str, Any]:
    """A list of episodes, as columns.

    Args:
        rows: those after the first `known`.
        reading: of the list; another reading has another list.
    """
    columns = {name: [getattr(row, name) for row in rows] for name in Head._fields}
    return {"reading": reading, "since": known, "columns": columns}


def about(
    episode: Episode,
    goal: str,
    *,
    learned_in: int | None,
    valued: bool,
    names: Mapping[Kind, str],
    problems: Sequence[str],
) -> dict[str, Any]:
    """Facts about an episode that `readable` leaves out.

    Args:
        learned_in: the step that learned from it.
        valued: values of its states may have been measured.
        names: as of `names_of` its run.
        problems: as of `fitted`.
    """
    models = dict.fromkeys(t.completion.model for t in episode.turns if t.completion.model)
    trained = episode.split == "train"
    return {
        "task": episode.task_id,
        "goal": goal,
        "kind": kind_name(kind_of(episode), names),
        "step": episode.step,
        "learned_in": learned_in if trained else None,
        "rollout": episode.rollout,
        "models": [*models],
        "valued": trained and valued,
        "damaged": episode.damaged,
        "problems": [*problems],
        "branches": [each._asdict() for each in branches(episode)],
        "egress": egress_of(episode),
        "evidence": [
            {"contested": score.contested, "timed_out": score.timed_out, "answer": score.answer}
            for score in episode.scores
        ],
    }


def judged(
    episode: Episode,
    credited: CreditedEpisode | None,
    scored: Sequence[ScoredEpisode],
    most: int = TEXT,
) -> dict[str, Any]:
    """The stored scores of an episode's chunks: of each scorer its name, values and reasons.

    Args:
        credited: as for `readable`, and so is `most`.
        scored: the lines of ``step_scores/`` about the episode, as of `fitted`.
    """
    chunks = turn_chunks(episode.turns) if credited is None else credited.chunks
    found = located(scored, chunks).items()
    return {
        "judged": [[name, [_judgement(each, most) for each in scores]] for name, scores in found]
    }


def _judgement(score: StepScore, most: int) -> list[Any]:
    """The value, or None for one that abstained, and why."""
    return [score.value, clipped(score.abstained or score.text, most)]
