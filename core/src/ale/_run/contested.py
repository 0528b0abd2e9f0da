"""Scores that nobody can vouch for, and what they count as."""

from collections.abc import Sequence
from typing import Literal

from ale._run.grading import reward
from ale.types import Episode, Failure, Score, replace

How = Literal["reward", "failed", "broken"]


def how(chosen: How | None, *, trains: bool, episode: Episode) -> How:
    """The choice for an episode's contested scores.

    Args:
        chosen: ``run.contested``.
        trains: the run has a trainer.
    """
    learned = trains and episode.split == "train"
    return chosen or ("failed" if learned else "reward")


def counted(episode: Episode, as_what: How) -> Episode:
    """The episode with its contested scores counted so; the same if it has none."""
    contested = [score for score in episode.scores if score.contested is not None]
    if not contested or episode.failure is not None or as_what == "reward":
        return episode
    if as_what == "broken":
        message = "; ".join(score.detail for score in contested)
        failure = Failure(stage="grading", kind="ContestedScore", message=message)
        return replace(episode, reward=None, failure=failure)
    scores = tuple(_failed(score) for score in episode.scores)
    return replace(episode, scores=scores, reward=reward(scores))


def carried_over(score: Score, stored: Sequence[Score]) -> Score:
    """A score that no judge gave, contested as those that the run stored: it refutes none of them.

    Args:
        stored: all scores of the same episode.
    """
    values = [each.contested for each in stored if each.contested is not None]
    if not values or score.contested is not None or score.value <= min(values):
        return score
    note = "[contested: the stored verdict was, and there was no judge to look again]"
    return replace(score, contested=min(values), detail=f"{score.detail}\n{note}".strip())


def _failed(score: Score) -> Score:
    if score.contested is None:
        return score
    detail = f"{score.detail}\n[counted as 0 instead of {score.value:g}]"
    return replace(score, value=0.0, passed=False, unbounded=False, detail=detail)
