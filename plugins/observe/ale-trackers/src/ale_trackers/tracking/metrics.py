"""Metrics, with the same names in every tracker."""

from collections import deque
from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

from ale.runs import SUCCESS
from ale.types import Episode


@frozen(kw_only=True)
class Point:
    """Values at one position of one axis."""

    axis: Literal["episode", "step"]
    index: int
    """Number of the finished episode in the run, resumed parts included, from 1; or of the
    training step."""
    values: Mapping[str, float] = field(factory=dict)
    at: float = 0.0
    """Seconds since the epoch."""
    episode: Episode | None = field(default=None, repr=False)
    """For the axis ``episode``: the finished one."""


def episode_metrics(episode: Episode) -> dict[str, float]:
    """The metrics of one episode.

    Returns:
        ``episode/broken`` (0 or 1), and for a graded one ``episode/reward`` and
        ``episode/success`` (1 where the reward is 1, else 0), which are
        ``episode/reward_from_starts`` and ``episode/success_from_starts`` where an expert began it;
        ``episode/turns``, ``episode/tool_calls``, ``episode/tool_errors``;
        ``episode/prompt_tokens`` and ``episode/completion_tokens`` of the turns that the model
        sampled, where the provider counted them; ``seconds/<stage>``.
    """
    turns = episode.trajectory.turns
    observations = [observation for turn in turns for observation in turn.observations]
    usage = [turn.completion.usage for turn in turns if not turn.completion.forced]
    tokens = {
        "episode/prompt_tokens": float(sum(u.prompt_tokens for u in usage)),
        "episode/completion_tokens": float(sum(u.completion_tokens for u in usage)),
    }
    metrics = {
        "episode/broken": float(episode.broken),
        "episode/turns": float(len(turns)),
        "episode/tool_calls": float(len(observations)),
        "episode/tool_errors": float(sum(o.error is not None for o in observations)),
        **{name: n for name, n in tokens.items() if n},  # 0 means: not counted
        **{f"seconds/{stage}": seconds for stage, seconds in episode.seconds.items()},
    }
    if episode.reward is not None:
        # A demonstration, or a rollout from an expert's state, is not the policy's own success.
        suffix = "_from_starts" if episode.start else ""
        metrics[f"episode/reward{suffix}"] = episode.reward
        metrics[f"episode/success{suffix}"] = float(episode.reward == SUCCESS)
    return metrics


class Means:
    """Moving means of the metrics ``episode/...``, as ``mean/...``.

    Args:
        window: number of last values of each metric to average. A broken episode has no
            reward, so ``mean/reward`` is that of the last `window` graded ones.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._last: dict[str, deque[float]] = {}

    def add(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The means after this episode, for the metrics that it has."""
        means = {}
        for name, value in metrics.items():
            group, _, rest = name.partition("/")
            if group == "episode":
                last = self._last.setdefault(name, deque(maxlen=self._window))
                last.append(value)
                means[f"mean/{rest}"] = sum(last) / len(last)
        return means
