"""Corrections where another policy sampled, on a problem small enough to enumerate: no noise."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from ale.plugin import BuildContext
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.objective import Terms, Tokens, evaluate
from ale_trainer_policy.options import (
    PRESETS,
    CorrectionOptions,
    ObjectiveParts,
    PolicyOptions,
    resolve_correction,
)

ACTIONS = 3
PATHS = list(itertools.product(range(ACTIONS), repeat=3))
CHUNKS = (0, 1, 1)
"""The first token is a chunk, and the other two are one."""
UNBOUNDED = 1e12


class Policy:
    """Three tokens, each distributed by a table over what came before."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tables = [
            torch.randn((ACTIONS,) * depth, generator=generator, dtype=torch.float64)
            .mul_(0.4)
            .requires_grad_()
            for depth in (1, 2, 3)
        ]

    def logps(self, paths: Sequence[tuple[int, ...]] = PATHS) -> Tensor:
        """(paths, 3)."""
        scores = [table.log_softmax(-1) for table in self.tables]
        found = [torch.stack([s[path[: i + 1]] for i, s in enumerate(scores)]) for path in paths]
        return torch.stack(found)

    def gradient(self, value: Tensor) -> Tensor:
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, self.tables)])


POLICY, SAMPLER = Policy(0), Policy(1)
REWARDS = torch.tensor(
    [float(path[0] == 1) + 0.5 * (path[1] == path[2]) - 0.7 * (path[2] == 0) for path in PATHS],
    dtype=torch.float64,
)
with torch.no_grad():
    SAMPLED = SAMPLER.logps()
    KAPPA = (POLICY.logps() - SAMPLED).exp()
    """pi / mu of each token: (paths, 3)."""
CHANCE = SAMPLED.sum(-1).exp()
"""Of each path under the sampler."""


def batch(weights: Tensor, sampled: Tensor = SAMPLED) -> Tokens:
    """Every path once, as one trajectory each."""
    n = weights.numel()
    return Tokens(
        weight=weights.flatten(),
        imitation=torch.zeros(n, dtype=torch.float64),
        behaviour_logp=sampled.flatten(),
        sampled=torch.ones(n, dtype=torch.bool),
        positive=weights.flatten() > 0,
        chunk_id=torch.tensor([2 * i + k for i in range(len(PATHS)) for k in CHUNKS]),
        trajectory_id=torch.arange(len(PATHS)).repeat_interleave(3),
    )


def expected(correction: CorrectionOptions) -> Tensor:
    """The estimator's expectation under the sampler, as a direction of ascent."""
    parts = evolve(PRESETS["reinforce"], correction=correction)
    weights = (CHANCE * REWARDS)[:, None].expand(-1, 3)
    terms = evaluate(parts, POLICY.logps().flatten(), None, batch(weights))
    return POLICY.gradient(-terms.loss)


def truth() -> Tensor:
    """d/d theta of E[R] under the policy itself."""
    return POLICY.gradient((POLICY.logps().sum(-1).exp() * REWARDS).sum())


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


UNITS: Mapping[str, Sequence[tuple[int, ...]]] = {
    "token": ((0,), (1,), (2,)),
    "chunk": ((0,), (1, 2)),
    "trajectory": ((0, 1, 2),),
}


def factors(kappa: Sequence[float], given: CorrectionOptions) -> list[float]:
    """A second implementation, path by path, as the documentation has it."""
    ratio = [0.0] * 3
    for unit in UNITS[given.level]:
        value = math.prod(kappa[i] for i in unit)
        for i in unit:
            ratio[i] = value ** (1 / len(unit)) if given.aggregation != "product" else value
    floor = 1 / given.cap if given.floor is None else given.floor
    inside = [floor <= value <= given.cap for value in ratio]
    if given.method == "truncate":
        return [min(value, given.cap) for value in ratio]
    if given.method == "mask":
        return [value * kept for value, kept in zip(ratio, inside, strict=True)]
    return [value * all(inside) for value in ratio]


METHODS: Sequence[Any] = ("truncate", "mask", "reject")
EVERY = [
    CorrectionOptions(method=method, level=level, aggregation=aggregation, cap=1.5)
    for method in METHODS
    for level in UNITS
    for aggregation in ("product", "geometric-mean")
]


@pytest.mark.parametrize("method", METHODS)
def test_the_whole_trajectorys_ratio_without_bounds_is_unbiased(method: Any) -> None:
    given = CorrectionOptions(method=method, level="trajectory", cap=UNBOUNDED)
    assert error(expected(given), truth()) < 1e-12


@pytest.mark.parametrize(
    "given",
    [
        CorrectionOptions(method="none"),
        CorrectionOptions(method="truncate", level="token", cap=UNBOUNDED),
        CorrectionOptions(method="truncate", level="chunk", cap=UNBOUNDED),
        CorrectionOptions(
            method="truncate", level="trajectory", aggregation="geometric-mean", cap=UNBOUNDED
        ),
        *EVERY,
    ],
    ids=str,
)
def test_every_other_correction_is_biased_as_documented(given: CorrectionOptions) -> None:
    assert error(expected(given), truth()) > 0.01
    factor = [
        [1.0] * 3 if given.method == "none" else factors(kappa, given) for kappa in KAPPA.tolist()
    ]
    weights = torch.tensor(factor, dtype=torch.float64) * (CHANCE * REWARDS)[:, None]
    assert error(expected(given), POLICY.gradient((weights * POLICY.logps()).sum())) < 1e-12


def test_a_tokens_own_ratio_is_unbiased_where_an_episode_is_one_token() -> None:
    one = [(a,) for a in range(ACTIONS)]
    rewards = torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)

    def found(given: CorrectionOptions) -> Tensor:
        mu = SAMPLED[:: ACTIONS**2, 0]
        n = torch.arange(ACTIONS)
        tokens = Tokens(
            weight=mu.exp() * rewards,
            imitation=torch.zeros(ACTIONS, dtype=torch.float64),
            behaviour_logp=mu,
            sampled=torch.ones(ACTIONS, dtype=torch.bool),
            positive=rewards > 0,
            chunk_id=n,
            trajectory_id=n,
        )
        logp = POLICY.tables[0].log_softmax(-1)
        terms = evaluate(evolve(PRESETS["reinforce"], correction=given), logp, None, tokens)
        return torch.autograd.grad(-terms.loss, POLICY.tables[0])[0]

    chances = torch.stack([POLICY.tables[0].softmax(-1)[path] for path in one])
    (wanted,) = torch.autograd.grad((chances * rewards).sum(), POLICY.tables[0])
    assert error(found(CorrectionOptions(method="truncate", cap=UNBOUNDED)), wanted) < 1e-12
    assert error(found(CorrectionOptions(method="none")), wanted) > 0.01


def clipped(ratio: Tensor, weight: Tensor, parts: ObjectiveParts) -> Tensor:
    bounded = ratio.clamp(1 - parts.clip_low, 1 + parts.clip_high)
    return torch.minimum(ratio * weight, bounded * weight)


@pytest.mark.parametrize("preset", ["grpo", "dapo"])
@pytest.mark.parametrize("given", EVERY, ids=str)
def test_with_a_clipped_update_it_is_the_decoupled_objective(
    preset: str, given: CorrectionOptions
) -> None:
    """sum of f(pi_old / mu) min(u A, clip(u) A), u = pi_theta / pi_old; f carries no gradient."""
    old = Policy(2).logps().detach()
    kappa = (old - SAMPLED).exp()
    factor = torch.tensor([factors(each, given) for each in kappa.tolist()], dtype=torch.float64)
    weights = REWARDS[:, None].expand(-1, 3)
    parts = evolve(PRESETS[preset], correction=given)
    terms = evaluate(parts, POLICY.logps().flatten(), old.flatten(), batch(weights))
    ratio = (POLICY.logps() - old).exp()
    wanted = POLICY.gradient((factor * clipped(ratio, weights, parts)).sum())
    assert error(POLICY.gradient(-terms.loss), wanted) < 1e-12


def terms_of(given: CorrectionOptions, change: Callable[[Tokens], Tokens]) -> Terms:
    parts = evolve(PRESETS["reinforce"], correction=given)
    weights = REWARDS[:, None].expand(-1, 3)
    return evaluate(parts, POLICY.logps().flatten(), None, change(batch(weights)))


def test_a_forced_token_neither_rejects_its_trajectory_nor_counts_in_its_ratio() -> None:
    """Its log-probability is not the sampler's."""

    def forced(tokens: Tokens) -> Tokens:
        first = torch.arange(len(PATHS) * 3) % 3 == 0
        return evolve(
            tokens,
            sampled=~first,
            weight=torch.where(first, 0.0, tokens.weight),
            behaviour_logp=torch.where(first, -50.0, tokens.behaviour_logp),
        )

    given = CorrectionOptions(method="reject", level="trajectory", cap=1.5)
    found = terms_of(given, forced).correction.reshape(-1, 3)[:, 1:]
    product = KAPPA[:, 1:].prod(-1)
    kept = (product >= 1 / 1.5) & (product <= 1.5)
    assert kept.any()
    assert not kept.all()
    torch.testing.assert_close(found, torch.where(kept, product, 0.0)[:, None].expand(-1, 2))


@pytest.mark.parametrize("method", METHODS)
def test_a_ratio_that_is_infinite_or_no_number_leaves_no_infinite_gradient(method: Any) -> None:
    def broken(tokens: Tokens) -> Tokens:
        mu = tokens.behaviour_logp.clone()
        mu[0] = -math.inf
        mu[3] = math.nan if method != "truncate" else math.inf
        return evolve(tokens, behaviour_logp=mu)

    terms = terms_of(CorrectionOptions(method=method), broken)
    assert torch.isfinite(POLICY.gradient(terms.loss)).all()


def test_a_name_is_a_correction_by_token_up_to_two() -> None:
    assert resolve_correction("mask") == CorrectionOptions(method="mask", level="token", cap=2.0)
    assert resolve_correction("mask").lowest == 0.5
    assert resolve_correction(None) == CorrectionOptions(method="none")


@pytest.mark.parametrize(
    ("correction", "factor", "corrected"),
    [("none", 1.0, 0.0), ("truncate", 2.0, 1.0), ("mask", 0.0, 1.0)],
)
async def test_a_step_multiplies_the_gradient_of_stale_tokens(
    make_llm: Callable[..., Any], lab: Any, correction: Any, factor: float, corrected: float
) -> None:
    """Tokens three times as likely now as when they were sampled; the cap is 2."""
    llm, prompt, output = make_llm(), [1, 2], [7]
    with torch.no_grad():
        now = llm.policy.model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)[output[0]]
    norms = {}
    for stale in (0.0, math.log(3.0)):
        options = PolicyOptions(objective="reinforce", sync="copy", correction=correction)
        trainer = policy_trainer(options, BuildContext(staleness=1))
        trainer.attach(llm)
        turn = lab.TokenTurn(prompt=prompt, output=output, logps=[float(now) - stale])
        batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn])))
        metrics = (await trainer.step(batch)).metrics
        norms[stale] = metrics.get("grad_norm", 0.0)
    assert metrics["corrected_fraction"] == corrected
    assert metrics["effective_sample_size"] == pytest.approx(1.0), "all weigh the same"
    assert norms[math.log(3.0)] == pytest.approx(factor * norms[0.0], rel=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"correction": "reject"},
        {"correction": "mask", "epochs": 2},
        {"objective": "ipa"},
    ],
    ids=str,
)
async def test_a_step_whose_tokens_are_all_dropped_changes_nothing(
    make_llm: Callable[..., Any], lab: Any, options: dict[str, Any]
) -> None:
    """The tokens of its second step are far more likely than when they were sampled."""
    given: dict[str, Any] = {"objective": "reinforce", "lr": 1e-2, "weight_decay": 0.1, **options}
    trainer, llm = policy_trainer(PolicyOptions(sync="copy", **given), BuildContext()), make_llm()
    trainer.attach(llm)
    with torch.no_grad():
        scores = llm.policy.model(torch.tensor([[1, 2, 7]])).logits[0].log_softmax(-1)

    async def step(logps: list[float]) -> Any:
        turn = lab.TokenTurn(prompt=[1, 2], output=[7, 8], logps=logps)
        return await trainer.step(lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn]))))

    first = await step([float(scores[1, 7]), float(scores[2, 8])])
    before = trainer.snapshot().weights
    second = await step([-50.0, -50.0])
    assert (first.metrics["updates"], first.policy_version) == (given.get("epochs", 1), 1)
    assert first.metrics["updates_without_gradient"] == 0
    assert (second.metrics["updates"], second.policy_version) == (0, 1)
    assert second.metrics["updates_without_gradient"] == given.get("epochs", 1)
    assert {"loss", "grad_norm"}.isdisjoint(second.metrics)
    after = trainer.snapshot().weights
    assert all(torch.equal(after[name], before[name]) for name in before), "nor by the moments"


async def test_the_effective_sample_size_falls_where_few_tokens_have_most_of_the_weight(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    """Of tokens that weigh 1, 1 and 4: 36 / (3 * 18)."""
    llm = make_llm()
    with torch.no_grad():
        scores = llm.policy.model(torch.tensor([[1, 2, 7, 8, 9]])).logits[0].log_softmax(-1)
    now = [float(scores[at, token]) for at, token in ((1, 7), (2, 8), (3, 9))]
    trainer = policy_trainer(PolicyOptions(objective="reinforce"), BuildContext())
    trainer.attach(llm)
    logps = [now[0], now[1], now[2] - math.log(4.0)]
    turn = lab.TokenTurn(prompt=[1, 2], output=[7, 8, 9], logps=logps)
    batch = lab.batch_of(lab.credited(lab.TokenEpisode(turns=[turn])))
    found = (await trainer.step(batch)).metrics["effective_sample_size"]
    assert found == pytest.approx(36 / 54, rel=1e-4)
