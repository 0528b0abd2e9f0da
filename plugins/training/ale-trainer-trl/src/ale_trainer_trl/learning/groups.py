"""TRL's GRPO trainer on existing completions, token for token."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from trl import GRPOTrainer  # type: ignore[attr-defined]


@frozen(kw_only=True)
class Sampled:
    """One completion of a prompt: C tokens, C at least 1.

    Attributes:
        prompt_ids: ids before the completion.
        ids: shape (C,): sampled tokens, and observations in between.
        mask: shape (C,), 1 for sampled tokens, 0 for others.
        logprobs: shape (C,), the sampler's, in nats; 0 where nothing was sampled.
        reward: for the whole completion; None for padding, which counts in no mean.
        weights: shape (C,), an advantage per token instead of the group's; or None.
    """

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float]
    reward: float | None
    weights: Sequence[float] | None = None


def padded_groups(groups: Sequence[Sequence[Sampled]]) -> list[list[Sampled]]:
    """Pad groups to one size, as TRL needs.

    A group that is smaller because episodes broke is padded with masked copies without a reward:
    TRL leaves these copies out of the group's mean and deviation.
    """
    size = max(2, *(len(group) for group in groups))
    return [[*group, *[_blank(group[0])] * (size - len(group))] for group in groups]


def _blank(like: Sampled) -> Sampled:
    return Sampled(
        prompt_ids=like.prompt_ids,
        ids=like.ids[:1],
        mask=(0,),
        logprobs=(0.0,),
        reward=None,
        weights=None if like.weights is None else (0.0,),
    )


def stored_reward(
    prompts: Any, completions: Any, *, stored: Sequence[float | None], **_: Any
) -> Any:
    """TRL's reward function: the stored rewards of graded completions."""
    return list(stored)


class GroupTrainer(GRPOTrainer):
    """GRPO on given rollouts, without sampling.

    Args:
        groups: groups of equal size, in the order of the rows of `train_dataset`, whose prompts are
            the groups' numbers as text.
        more: further arguments for `GRPOTrainer`.
    """

    def __init__(self, groups: Sequence[Sequence[Sampled]], **more: Any) -> None:
        self._groups = groups
        super().__init__(rollout_func=self._rollouts, reward_funcs=[stored_reward], **more)

    def _rollouts(self, prompts: Sequence[str], _: Any) -> dict[str, list[Any]]:
        found = self._of(prompts)
        return {
            "prompt_ids": [list(each.prompt_ids) for each in found],
            "completion_ids": [list(each.ids) for each in found],
            "logprobs": [list(each.logprobs) for each in found],
            "env_mask": [list(each.mask) for each in found],
            "stored": [each.reward for each in found],
        }

    def _of(self, prompts: Sequence[str]) -> list[Sampled]:
        """The completions of these prompts; TRL repeats a prompt for each member of its group."""
        seen: Counter[str] = Counter()
        found = []
        for prompt in prompts:
            found.append(self._groups[int(prompt)][seen[prompt]])
            seen[prompt] += 1
        return found

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Replace advantages by the given weights per token, shape (B, C), if there are any."""
        made = super()._generate_and_score_completions(inputs)
        given = [each.weights for each in self._of([row["prompt"] for row in inputs])]
        if any(weights is not None for weights in given):
            per_token = torch.zeros(made["completion_ids"].shape, device=made["advantages"].device)
            for i, weights in enumerate(given):
                if weights is not None:
                    per_token[i, : len(weights)] = torch.tensor(weights)
            made["advantages"] = per_token
        return made
