"""The critic: V of a state, computed by a linear layer on hidden states, and its loss.

The state before a token is the hidden state that predicts the token. It comes from the policy's
last layer (``head``) or from a separate model of the critic (``model``). The linear layer starts at
0, so the first step's advantages are those without a critic.
"""

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ale.errors import InputError
from ale.protocols import PolicyModel
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.models import copied, loaded_model, set_trained
from ale_trainer_policy.options import LearnOptions


class Critic(torch.nn.Module):
    """V(s), with its own model or on hidden states that are passed in.

    Args:
        options: the critic's.
        model: a transformers model without output layer; None: use the policy's hidden states.
        like: a weight of the output layer that reads these hidden states.
    """

    def __init__(self, options: CriticOptions, model: Any, like: Tensor) -> None:
        super().__init__()
        self.options = options
        self.model = model
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.head = torch.nn.Linear(like.shape[-1], 1, dtype=dtype, device=like.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(
        self, hidden: Tensor | None, inputs: dict[str, Any] | None = None, at: Tensor | None = None
    ) -> Tensor:
        """Values, (n,), float32 or wider.

        Args:
            hidden: the policy's states, (n, width), for a critic without a model.
            inputs: for the critic's own model.
            at: the n positions of the states in that model's output, leading dimensions flattened.
        """
        if self.model is not None:
            assert inputs is not None
            hidden = self.model(**inputs).last_hidden_state.flatten(0, -2)[at]
        assert hidden is not None
        if self.options.type == "head" and self.options.gradient == "head":
            hidden = hidden.detach()
        # No autocast: values in half precision could not tell apart rewards that differ by 0.004.
        with torch.autocast(hidden.device.type, enabled=False):
            found = self.head(hidden.to(self.head.weight.dtype))
        # Not a view, which could lose FSDP's hooks.
        return found.sum(-1)


@frozen(kw_only=True, eq=False)
class ValueTerms:
    """The value loss of a micro-batch; only `loss` carries a gradient."""

    loss: Tensor
    clipped: Tensor
    """Where the clipped value's error is the larger one, so that there is no gradient: (T,)."""


def value_loss(
    values: Tensor, old: Tensor, target: Tensor, weight: Tensor, clip: float | None
) -> ValueTerms:
    """sum_t w_t 1/2 max((V_t - G_t)^2, (V_old + clip(V_t - V_old, -eps, eps) - G_t)^2).

    Args:
        values: V_t with its gradient, (T,); the other tensors have this shape too.
        old: V under the critic before the step.
        target: G, the lambda-return.
        weight: 0 where nothing is to be learned, else 1 / (number of units in the update).
        clip: eps; None: only the first, unclipped error is used.

    Source: PPO's value loss, arXiv:1707.06347, Eq. 9, clipped as in OpenAI's baselines.
    """
    plain = (values - target).square()
    if clip is None:
        nowhere = torch.zeros_like(values, dtype=torch.bool)
        return ValueTerms(loss=0.5 * (weight * plain).sum(), clipped=nowhere)
    moved = old + (values - old).clamp(-clip, clip)
    bounded = (moved - target).square()
    loss = 0.5 * (weight * torch.maximum(plain, bounded)).sum()
    clipped = ((values - old).abs() > clip) & (bounded > plain)
    return ValueTerms(loss=loss, clipped=clipped.detach())


def make_critic(
    policy: PolicyModel, options: LearnOptions, chosen: CriticOptions | None
) -> Critic | None:
    """The critic that the options choose, if any; called before the policy gets adapters.

    Raises:
        InputError: the policy has no output layer whose input could be valued, or the folder of the
            critic's model holds no model with the policy's vocabulary.
    """
    if chosen is None:
        return None
    output = getattr(policy.model, "get_output_embeddings", lambda: None)()
    if output is None:
        message = f"{type(policy.model).__name__} has no output layer, whose input a critic values"
        raise InputError.of(message, path="trainer.critic.type")
    if chosen.type == "head":
        return Critic(chosen, None, output.weight)
    if chosen.model is None:
        model = copied(policy.model, options).base_model
    else:
        path = "trainer.critic.model"
        model = loaded_model(policy, chosen.model, options, path, head=False).base_model
    set_trained(model, options)
    like = next(iter(model.get_input_embeddings().parameters()))
    return Critic(chosen, model, like.new_empty(1, model.config.get_text_config().hidden_size))
