"""The contract kit of objectives: the presets pass it, and what breaks it is named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

import ale
from ale.functions import function_of
from ale.plugin import BuildContext
from ale.protocols import Objective, Terms, Tokens
from ale.testing.objective import ObjectiveContract, random_tokens
from ale_trainer_policy.objective import Corrected
from ale_trainer_policy.options import PRESETS, CorrectionOptions


class TestPreset(ObjectiveContract):
    @pytest.fixture(params=PRESETS)
    def objective(self, request: pytest.FixtureRequest) -> Objective:
        return PRESETS[request.param]


@ale.objective(needs_entropy=True, needs_reference=True, normaliser="tokens")
def surrogate(
    tokens: Tokens, logp: Tensor, old_logp: Tensor, entropy: Tensor, *, clip: float = 0.2
) -> Tensor:
    """PPO's surrogate as it is written in papers, with an entropy bonus and k3."""
    used = tokens.weight != 0
    ratio = torch.where(used, logp - old_logp, 0.0).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    gain = torch.minimum(ratio * tokens.weight, clipped * tokens.weight)
    counts = tokens.regularised != 0
    x = torch.where(counts, tokens.reference_logp - logp, 0.0)
    kl = tokens.regularised * (torch.expm1(x) - x)
    return -gain.sum() + 0.1 * kl.sum() - 0.01 * (tokens.regularised * entropy).sum()


def built(function: Any, **options: Any) -> Any:
    found = function_of(function)
    assert found is not None
    cls = found.component.options
    return found.component.build(cls and cls(**options), BuildContext())


class TestFunction(ObjectiveContract):
    @pytest.fixture
    def objective(self) -> Objective:
        made: Objective = built(surrogate, clip=0.1)
        return made


class TestCorrected(ObjectiveContract):
    @pytest.fixture
    def objective(self) -> Objective:
        chosen = CorrectionOptions(method="truncate", cap=1.02)
        return Corrected(objective=built(surrogate), correction=chosen)

    def test_the_correction_is_that_of_the_presets(self) -> None:
        chosen = CorrectionOptions(method="mask", cap=1.05)
        plain = built(policy_gradient)
        given = random_tokens(plain, 1)
        found, _ = given.gradients(Corrected(objective=plain, correction=chosen))
        wanted, _ = given.gradients(evolve(PRESETS["reinforce"], correction=chosen))
        torch.testing.assert_close(found, wanted)
        assert not torch.equal(wanted, given.gradients(plain)[0])


@ale.objective
def policy_gradient(tokens: Tokens, logp: Tensor, old_logp: Tensor, entropy: None) -> Tensor:
    return -(tokens.weight * logp).sum()


def _mean(tokens: Tokens, logp: Tensor) -> Tensor:
    return -(tokens.weight * logp).mean()


def _held(tokens: Tokens, logp: Tensor) -> Tensor:
    return -(tokens.weight * (logp.detach() + 3).exp() * logp).sum()


def _all_tokens(tokens: Tokens, logp: Tensor) -> Tensor:
    return -((tokens.weight + 0.1) * logp).sum()


def _infinite(tokens: Tokens, logp: Tensor) -> Tensor:
    return -(tokens.weight * (logp - tokens.behaviour_logp).exp()).sum()


class Plain(Objective):
    """An objective that is not a function, and imitates as it is told."""

    def __init__(self, loss: Callable[[Tokens, Tensor], Tensor], imitates: bool = True) -> None:
        self._loss = loss
        self._imitates = imitates

    def evaluate(self, tokens: Tokens, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        imitation = -(tokens.imitation * logp).sum()
        return Terms(loss=self._loss(tokens, logp) + (imitation if self._imitates else 0.0))


@pytest.mark.parametrize(
    ("loss", "test"),
    [
        (_mean, "test_the_sum_over_micro_batches_is_that_of_the_whole"),
        (_held, "test_the_gradient_is_that_of_the_loss"),
        (_all_tokens, "test_a_token_without_weight_has_no_gradient_whatever_its_ratio"),
        (_all_tokens, "test_where_nothing_has_changed_it_is_the_policy_gradient"),
        (_infinite, "test_a_token_without_weight_has_no_gradient_whatever_its_ratio"),
    ],
)
def test_a_broken_objective_fails(loss: Any, test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(ObjectiveContract(), test)(Plain(loss), 1)


def test_an_objective_that_leaves_demonstrations_out_fails() -> None:
    kit = ObjectiveContract()
    test = kit.test_where_nothing_has_changed_it_is_the_policy_gradient
    gradient = lambda tokens, logp: -(tokens.weight * logp).sum()  # noqa: E731
    test(Plain(gradient), 1)
    with pytest.raises(AssertionError):
        test(Plain(gradient, imitates=False), 1)
