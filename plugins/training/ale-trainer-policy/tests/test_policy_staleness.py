"""Learning from samples that are eta steps old, where failures count: with correction and without.

One answer of 27 is right: three tokens, each distributed by a table over what came before. Every
batch is sampled from the policy of eta steps ago, the oldest that ``run.staleness`` admits. A right
answer weighs nothing and a wrong one -1, so that all of learning is to get away from what fails,
and old samples go on pushing where the policy no longer is.
"""

import itertools
import statistics
from collections.abc import Sequence

import pytest
import torch
from attrs import evolve
from torch import Tensor

from ale_trainer_policy.objective import Tokens, evaluate
from ale_trainer_policy.options import PRESETS, CorrectionOptions

ACTIONS, LENGTH = 3, 3
PATHS = torch.tensor(list(itertools.product(range(ACTIONS), repeat=LENGTH)))
RIGHT = (torch.tensor([1, 2, 0]) == PATHS).all(-1)
STEPS, BATCH, RATE = 120, 32, 2.0
SEEDS = range(6)
MORE_SEEDS = range(20)
NONE = CorrectionOptions(method="none")
TRUNCATE = CorrectionOptions(method="truncate", level="token", cap=2.0)


class Policy:
    """Uniform at first."""

    def __init__(self) -> None:
        self.tables = [
            torch.zeros((ACTIONS,) * depth, dtype=torch.float64, requires_grad=True)
            for depth in range(1, LENGTH + 1)
        ]

    def logps(self) -> Tensor:
        """(27, 3): of each token of each answer."""
        found = [
            table.log_softmax(-1)[tuple(PATHS[:, : depth + 1].T)]
            for depth, table in enumerate(self.tables)
        ]
        return torch.stack(found, -1)

    def descend(self, loss: Tensor) -> None:
        for table, slope in zip(self.tables, torch.autograd.grad(loss, self.tables), strict=True):
            table.data -= RATE * slope


def batch_of(answers: Tensor, sampled: Tensor) -> Tokens:
    """Every answer as a trajectory whose tokens are chunks."""
    n = answers.numel() * LENGTH
    weight = (RIGHT[answers].double() - 1.0).repeat_interleave(LENGTH)
    return Tokens(
        weight=weight,
        imitation=torch.zeros(n, dtype=torch.float64),
        behaviour_logp=sampled[answers].flatten(),
        sampled=torch.ones(n, dtype=torch.bool),
        positive=weight > 0,
        chunk_id=torch.arange(n),
        trajectory_id=torch.arange(answers.numel()).repeat_interleave(LENGTH),
    )


def success_after(eta: int, correction: CorrectionOptions, seed: int) -> float:
    """The chance of the right answer after all steps, by enumeration."""
    chance = torch.Generator().manual_seed(seed)
    policy = Policy()
    versions = [policy.logps().detach()]
    parts = evolve(PRESETS["reinforce"], correction=correction)
    for step in range(STEPS):
        sampler = versions[max(0, step - eta)]
        weights = sampler.sum(-1).exp()
        answers = torch.multinomial(weights, BATCH, replacement=True, generator=chance)
        tokens = batch_of(answers, sampler)
        terms = evaluate(parts, policy.logps()[answers].flatten(), None, tokens)
        policy.descend(terms.loss / BATCH)
        versions.append(policy.logps().detach())
    return float(versions[-1].sum(-1).exp()[RIGHT])


def successes(eta: int, correction: CorrectionOptions, seeds: Sequence[int] = SEEDS) -> list[float]:
    return [success_after(eta, correction, seed) for seed in seeds]


@pytest.fixture(scope="module")
def synchronous() -> float:
    """Mean success without staleness."""
    return statistics.mean(successes(0, NONE))


@pytest.mark.parametrize("eta", [2, 8])
def test_with_correction_old_samples_teach_as_well_as_new_ones(
    synchronous: float, eta: int
) -> None:
    assert synchronous > 0.98
    assert min(successes(eta, TRUNCATE)) > synchronous - 0.02


def test_without_correction_old_samples_drive_the_policy_away_from_what_is_right(
    synchronous: float,
) -> None:
    found = successes(8, NONE)
    assert statistics.mean(found) < synchronous - 0.4
    assert min(found) < 0.01, "some seeds end with the right answer all but impossible"


@pytest.mark.long
@pytest.mark.parametrize(("eta", "uncorrected"), [(0, 20), (1, 20), (2, 18), (4, 11), (8, 9)])
def test_of_20_seeds_so_many_find_the_right_answer(eta: int, uncorrected: int) -> None:
    """The table of docs/why/asynchronous.md."""
    found = {
        correction.method: sum(each > 0.9 for each in successes(eta, correction, MORE_SEEDS))
        for correction in (NONE, TRUNCATE)
    }
    assert found == {"none": uncorrected, "truncate": 20}
