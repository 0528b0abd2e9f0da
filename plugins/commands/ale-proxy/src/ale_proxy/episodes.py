"""A session that has ended, as an episode of a task."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ale.types import Episode, Failure, Message, Score, Stop, Task, Trajectory, Turn

if TYPE_CHECKING:
    from ale_proxy.sessions import Ending, Session

_STOPS = {
    "feedback": Stop(reason="finished"),
    "end": Stop(reason="finished"),
    "timeout": Stop(reason="time_limit", detail="no request came any more"),
    "shutdown": Stop(reason="time_limit", detail="the proxy was stopped"),
}


@frozen(kw_only=True)
class Feedback:
    """What was said of a session."""

    score: float | None = None
    """In [0, 1]."""
    text: str = ""
    author: str = ""


def task_of(task_id: str | None, messages: Sequence[Message]) -> Task:
    """The task of a session: the first message of its user.

    Args:
        task_id: as the agent names it; default: made of that message, so that sessions that begin
            with the same one are of one task.
        messages: the conversation of the first request.
    """
    goal = next((message.content for message in messages if message.role == "user"), "")
    return Task(id=task_id or task_id_of(goal), goal=goal, origin="ale proxy")


def task_id_of(goal: str) -> str:
    """The id of a task that nobody has named: the same goal is the same task."""
    return f"task-{hashlib.sha256(goal.encode('utf-8', 'replace')).hexdigest()[:12]}"


def episode_id_of(task: Task, rollout: int) -> str:
    """The episode's id."""
    return f"0-{task.id}-{rollout}"


def episode_of(session: "Session", task: Task, how: "Ending", seconds: float) -> Episode:
    """The episode of a session.

    Without a score it has no reward, and so no part in training: nothing is invented.
    """
    texts = [each for each in session.feedback if each.text]
    scored = next((each for each in reversed(session.feedback) if each.score is not None), None)
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
    if session.left_out:
        metadata["not_recorded"] = dict(session.left_out)
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


def _failure(session: "Session", turns: Sequence[Turn], score: float | None) -> Failure | None:
    if not turns:
        reasons = "; ".join(f"{reason} ({n})" for reason, n in session.left_out.items())
        message = f"no answer was recorded: {reasons or 'nothing was asked'}"
        return Failure(stage="agent", kind="NoAnswer", message=message)
    if score is None:
        message = "the session ended without a score"
        return Failure(stage="grading", kind="NoScore", message=message)
    return None
