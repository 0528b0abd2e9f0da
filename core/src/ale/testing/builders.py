"""Build records for tests, with defaults for every field that does not matter."""

import math
from collections.abc import Sequence

from ale.types import (
    BatchStatistics,
    Chunk,
    Completion,
    Conversation,
    Episode,
    Group,
    Message,
    Observation,
    Rollout,
    Stop,
    Task,
    TokenTrace,
    ToolCall,
    Trajectory,
    Turn,
)


def conversation(
    episode_id: str = "0-demo-0", *, task_id: str = "demo", rollout: int = 0, seed: int = 0
) -> Conversation:
    """A conversation of the task ``demo``."""
    return Conversation(episode_id=episode_id, task_id=task_id, rollout=rollout, seed=seed)


def task(task_id: str = "demo", *, goal: str = "Do it.", **fields: object) -> Task:
    """A task without criteria."""
    return Task(id=task_id, goal=goal, **fields)  # type: ignore[arg-type]


def turn(
    text: str = "",
    *,
    calls: Sequence[tuple[str, str]] = (),
    observations: Sequence[str] | None = None,
    errors: Sequence[str | None] | None = None,
    tokens: int | None = None,
    fresh_context: bool = False,
    prompt: Sequence[Message] = (),
) -> Turn:
    """A turn: `text`, then calls of (tool, arguments as JSON), each with its observation.

    Args:
        observations: one text per call; default ``ok``.
        errors: one per call; None means no error.
        tokens: how many tokens the completion has; None records none.
    """
    made = tuple(
        ToolCall(id=f"call_{i}", name=name, arguments=arguments)
        for i, (name, arguments) in enumerate(calls)
    )
    texts = observations if observations is not None else ["ok"] * len(made)
    failures = errors if errors is not None else [None] * len(made)
    trace = None
    if tokens is not None:
        trace = TokenTrace(
            prompt_ids=(1, 2, 3),
            output_ids=tuple(range(10, 10 + tokens)),
            logprobs=(-0.5,) * tokens,
            policy_versions=(0,) * tokens,
        )
    return Turn(
        prompt=tuple(prompt),
        fresh_context=fresh_context,
        completion=Completion(
            message=Message(role="assistant", content=text, tool_calls=made),
            finish_reason="tool_calls" if made else "stop",
            tokens=trace,
        ),
        observations=tuple(
            Observation(call_id=call.id, tool=call.name, content=content, error=error)
            for call, content, error in zip(made, texts, failures, strict=True)
        ),
    )


def trajectory(*turns: Turn, stop: str = "finished") -> Trajectory:
    """A trajectory of these turns."""
    return Trajectory(turns=turns, stop=Stop(reason=stop))  # type: ignore[arg-type]


def episode(
    reward: float | None = 1.0,
    *turns: Turn,
    task_id: str = "demo",
    rollout: int = 0,
    episode_id: str | None = None,
) -> Episode:
    """A graded (or, with reward None, broken) episode of these turns."""
    return Episode(
        id=episode_id or f"0-{task_id}-{rollout}",
        task_id=task_id,
        rollout=rollout,
        reward=reward,
        trajectory=trajectory(*turns),
    )


def group(*rollouts: tuple[Episode, Sequence[Chunk]], mean_reward: float | None = None) -> Group:
    """A group of (episode, chunks); the batch's mean reward is the group's own unless given."""
    rewards = [e.reward for e, _ in rollouts if e.reward is not None]
    mean = mean_reward if mean_reward is not None else math.fsum(rewards) / max(1, len(rewards))
    return Group(
        task_id=rollouts[0][0].task_id if rollouts else "demo",
        rollouts=tuple(Rollout(episode=e, chunks=tuple(chunks)) for e, chunks in rollouts),
        batch=BatchStatistics(n_episodes=len(rewards), mean_reward=mean),
    )
