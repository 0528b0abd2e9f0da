"""A session that has ended, as an episode of a task."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ale.types import (
    FEEDBACK,
    Chunk,
    Episode,
    Failure,
    Score,
    ScoredEpisode,
    StepScore,
    Stop,
    Task,
    Trajectory,
    Turn,
    whole_turn,
)
from ale_proxy.exchange import Ending, Session

_STOPS = {
    "feedback": Stop(reason="finished"),
    "end": Stop(reason="finished"),
    "timeout": Stop(reason="time_limit", detail="no request came any more"),
    "shutdown": Stop(reason="time_limit", detail="the proxy was stopped"),
}


def episode_id_of(task: Task, rollout: int) -> str:
    """The episode's id."""
    return f"0-{task.id}-{rollout}"


def episode_of(session: Session, task: Task, how: Ending, seconds: float) -> Episode:
    """The episode of a session.

    Without a score it has no reward, and so no part in training: nothing is invented.
    """
    said = [each for each in session.feedback if each.turn is None]
    texts = [each for each in said if each.text]
    scored = next((each for each in reversed(said) if each.score is not None), None)
    score = None if scored is None else scored.score
    turns = tuple(session.conversation.turns)
    if session.assignment is not None:
        turns = turns or session.assignment.turns(task)
    failure = _failure(session, turns, score)
    metadata: dict[str, Any] = {
        "session": session.name,
        "ended_by": how,
        "apis": sorted(session.apis),
    }
    if session.rewriting is not None:
        metadata["middleware"] = session.rewriting.facts
    if session.assignment is not None:
        metadata["assignment"] = session.assignment.facts()
    if texts:
        metadata["feedback"] = [{"author": each.author, "text": each.text} for each in texts]
    metadata |= {name: found for name, found in _recorded(session) if found}
    text = "\n".join(each.text for each in texts)
    scores = (
        ()
        if score is None
        else (Score(criterion="feedback", passed=score == 1, value=score, detail=text),)
    )
    return Episode(
        id=episode_id_of(task, session.rollout),
        task_id=task.id,
        rollout=session.rollout,
        reward=score if failure is None else None,
        scores=scores,
        trajectory=Trajectory(turns=turns, stop=_STOPS[how]),
        failure=failure,
        started_at=session.started.isoformat(timespec="milliseconds"),
        seconds={"agent": round(seconds, 6)},
        metadata=metadata,
    )


def scores_of(session: Session, episode: Episode) -> list[ScoredEpisode]:
    """The scores that turns were given; of several about one turn, the last counts."""
    places = {number: place for place, number in enumerate(session.conversation.order)}
    found = {
        places[each.turn]: StepScore(value=each.score, text=each.text)
        for each in session.feedback
        if each.turn is not None
    }
    turns = episode.trajectory.turns
    if not found:
        return []
    chunks = [
        Chunk(index=i, kind="turn", spans=(whole_turn(place, turns[place]),))
        for i, place in enumerate(sorted(found))
    ]
    scored = ScoredEpisode(
        episode_id=episode.id,
        started_at=episode.started_at,
        scorer=FEEDBACK,
        chunks=tuple(chunks),
        scores=tuple(found[place] for place in sorted(found)),
    )
    return [scored]


def _recorded(session: Session) -> Iterator[tuple[str, Any]]:
    """What is told of the requests beside the turns."""
    order = session.conversation.order
    yield "answered_as", order if order != sorted(order) else None
    yield "sampling", _sampling(session, order)
    yield "broken_off", msgspec.to_builtins(session.broken)
    yield "not_recorded", dict(session.left_out)


def _sampling(session: Session, order: Sequence[int]) -> list[dict[str, Any]]:
    """What requests say of how to sample, each with the turns that it holds for."""
    turns: list[list[int]] = [[] for _ in session.sampling]
    for place, number in enumerate(order):
        turns[session.sampled[number]].append(place)
    return [
        {"fields": fields, "turns": own}
        for fields, own in zip(session.sampling, turns, strict=True)
        if fields
    ]


def _failure(session: Session, turns: Sequence[Turn], score: float | None) -> Failure | None:
    if not turns:
        reasons = "; ".join(f"{reason} ({n})" for reason, n in session.left_out.items())
        message = f"no answer was recorded: {reasons or 'nothing was asked'}"
        return Failure(stage="agent", kind="NoAnswer", message=message)
    if score is None:
        message = "the session ended without a score"
        return Failure(stage="grading", kind="NoScore", message=message)
    return None
