"""Scores that nobody can vouch for, and what they count as."""

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


def _failed(score: Score) -> Score:
    if score.contested is None:
        return score
    detail = f"{score.detail}\n[counted as 0 instead of {score.value:g}]"
    return replace(score, value=0.0, passed=False, unbounded=False, detail=detail)
