"""The objective against the golden case, its reductions and its invariances (IPA's tests)."""

import math
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from ale_trainer_policy.objective import Terms, Tokens, evaluate
from ale_trainer_policy.options import (
    PRESETS,
    ObjectiveOptions,
    ObjectiveParts,
    resolve_objective,
)

LENGTHS = (3, 2, 1)
OLD = (-1, -2, -0.5, -0.7, -0.2, -1)
CHANGE = (0.3, -0.1, 0.1, -0.4, -0.2, 0.5)
MISMATCH = (0, 0, 2.4, -3, -3, 0.1)
GAMMA = 0.5
IPA = PRESETS["ipa"]
OPEN = evolve(IPA, mask="none")


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tokens(
    weight: Tensor,
    behaviour: Tensor,
    chunk: list[int] | None = None,
    trajectory: list[int] | None = None,
    imitation: Tensor | None = None,
    sampled: list[bool] | None = None,
) -> Tokens:
    n = len(weight)
    return Tokens(
        weight=weight,
        imitation=torch.zeros_like(weight) if imitation is None else imitation,
        behaviour_logp=behaviour,
        sampled=torch.tensor([True] * n if sampled is None else sampled),
        positive=weight > 0,
        chunk_id=torch.tensor([0] * n if chunk is None else chunk),
        trajectory_id=torch.tensor([0] * n if trajectory is None else trajectory),
    )


def golden(parts: ObjectiveParts, reward: float) -> tuple[Terms, Tensor]:
    """Terms and d loss / d log pi of the golden case."""
    chunk = [k for k, length in enumerate(LENGTHS) for _ in range(length)]
    returns = [reward * GAMMA ** (len(LENGTHS) - 1 - k) for k in range(len(LENGTHS))]
    old = tensor(*OLD)
    logp = (old + tensor(*CHANGE)).requires_grad_()
    given = tokens(tensor(*(returns[k] for k in chunk)), old - tensor(*MISMATCH), chunk)
    terms = evaluate(parts, logp, old, given)
    (gradient,) = torch.autograd.grad(terms.loss, logp)
    return terms, gradient


def close(found: Tensor, *wanted: float) -> None:
    torch.testing.assert_close(found, tensor(*wanted), rtol=0, atol=1e-6)


def test_golden_case_ratio_and_mismatch_per_chunk() -> None:
    terms, _ = golden(IPA, 1.0)
    close(terms.ratio[[0, 3, 5]], 1.105171, 0.740818, 1.648721)
    close(terms.mismatch[[0, 3, 5]], 2.225541, 0.049787, 1.105171)


def test_golden_case_of_a_success() -> None:
    terms, gradient = golden(OPEN, 1.0)
    close(terms.loss.reshape(1), 2.05)
    close(gradient, -0.25, -0.25, -0.25, -0.5, -0.5, -1)


def test_golden_case_of_a_failure() -> None:
    terms, gradient = golden(OPEN, -1.0)
    close(terms.loss.reshape(1), -1.855614)
    close(gradient, 0.25, 0.25, 0.25, 0.370409, 0.370409, 1)


def test_golden_case_chunk_mask_and_token_mask() -> None:
    by_chunk, gradient = golden(evolve(IPA, mask_threshold=2.0), 1.0)
    assert by_chunk.unmasked.tolist() == [False, False, False, True, True, True]
    close(gradient, 0, 0, 0, -0.5, -0.5, -1)
    by_token, _ = golden(evolve(IPA, mask="token", mask_threshold=2.0), 1.0)
    assert by_token.unmasked.tolist() == [True, True, False, True, True, True]


def random_case(
    seed: int, n: int = 12, sign: float | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log pi (with gradient), log pi_old, log mu_old, weights."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(n, generator=generator, dtype=torch.float64)

    old = -normal().abs() - 0.1
    logp = (old + 0.4 * normal()).requires_grad_()
    weight = normal() if sign is None else sign * normal().abs()
    return logp, old, old + 0.2 * normal(), weight


def gradient_of(parts: ObjectiveParts, logp: Tensor, old: Tensor | None, given: Tokens) -> Tensor:
    (found,) = torch.autograd.grad(evaluate(parts, logp, old, given).loss, logp)
    return found


def test_with_every_token_its_own_chunk_ipa_is_token_level_truncated_importance_sampling() -> None:
    logp, old, mu, weight = random_case(0)
    each = list(range(len(weight)))
    ipa = gradient_of(OPEN, logp, old, tokens(weight, mu, chunk=each))
    tis = gradient_of(PRESETS["token-tis"], logp, old, tokens(weight, mu))
    ratio = torch.exp(logp.detach() - old)
    written = -weight * torch.where(weight > 0, torch.ones_like(ratio), ratio.clamp(0, 1))
    torch.testing.assert_close(ipa, tis, rtol=0, atol=0)
    torch.testing.assert_close(ipa, written, rtol=1e-12, atol=0)


def test_with_one_chunk_ipa_has_the_geometric_ratio_of_the_sequence() -> None:
    logp, old, mu, weight = random_case(1)
    one = tokens(weight, mu, chunk=[0] * 12)
    ipa = gradient_of(OPEN, logp, old, one)
    baseline = gradient_of(evolve(PRESETS["ipa-baseline"], mask="none"), logp, old, one)
    torch.testing.assert_close(ipa, baseline, rtol=0, atol=0)


@pytest.mark.parametrize("shift", [-1e-4, 1e-4])
def test_one_chunk_of_ipa_is_not_gspo(shift: float) -> None:
    """Inside GSPO's clip range: IPA/GSPO is 1/s for A > 0 and min(s, 1)/s for A < 0."""
    old = tensor(-1, -2, -0.5)
    logp = (old + shift).requires_grad_()
    s = math.exp(shift)
    gspo = evolve(PRESETS["gspo"], normaliser="trajectories")
    for sign, ratio in ((1.0, 1 / s), (-1.0, min(s, 1) / s)):
        given = tokens(torch.full((3,), sign, dtype=torch.float64), old)
        ours = gradient_of(OPEN, logp, old, given)
        theirs = gradient_of(gspo, logp, old, given)
        torch.testing.assert_close(ours, ratio * theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_on_policy_ipa_gspo_and_grpo_are_one_gradient(sign: float) -> None:
    old = tensor(-1, -2, -0.5)
    logp = old.clone().requires_grad_()
    given = tokens(torch.full((3,), sign, dtype=torch.float64), old)
    found = [
        gradient_of(PRESETS[name], logp, old, given) for name in ("ipa", "gspo", "grpo", "cispo")
    ]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=0, atol=0)


def surrogate(name: str, logp: Tensor, old: Tensor, weight: Tensor) -> Tensor:
    """The loss of one trajectory as its paper writes it, differentiated by autograd."""
    parts = PRESETS[name]
    low, high = 1 - parts.clip_low, 1 + parts.clip_high
    change = logp - old
    if name == "cispo":
        return -(torch.exp(change).clamp(low, high).detach() * weight * logp).sum()
    ratio = torch.exp(change)
    if name == "gspo":
        # s_i(theta), and per token its stop-gradient form, GSPO-token (arXiv:2507.18071, Eq. 14).
        ratio = torch.exp(change.mean()).detach() * torch.exp(logp - logp.detach())
    return -torch.minimum(ratio * weight, ratio.clamp(low, high) * weight).sum()


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "dapo", "gspo", "cispo"])
@pytest.mark.parametrize("seed", range(8))
def test_a_clipped_preset_has_the_gradient_of_its_papers_surrogate(name: str, seed: int) -> None:
    logp, old, mu, weight = random_case(seed)
    if name == "gspo":
        with torch.no_grad():
            logp = (old + 2e-3 * (logp - old)).requires_grad_()
    ours = gradient_of(PRESETS[name], logp, old, tokens(weight, mu))
    (theirs,) = torch.autograd.grad(surrogate(name, logp, old, weight), logp)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gspos_token_form_is_its_sequence_form_for_one_advantage() -> None:
    logp, old, mu, _ = random_case(3, sign=1.0)
    parts = evolve(PRESETS["gspo"], clip_low=10.0, clip_high=10.0)
    advantage = torch.full((12,), 0.7 / 12, dtype=torch.float64)
    ours = gradient_of(parts, logp, old, tokens(advantage, mu))
    (theirs,) = torch.autograd.grad(-torch.exp((logp - old).mean()) * 0.7, logp)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


def test_reinforce_is_the_weighted_log_likelihood() -> None:
    logp, old, mu, weight = random_case(4)
    found = gradient_of(PRESETS["reinforce"], logp, old, tokens(weight, mu))
    torch.testing.assert_close(found, -weight, rtol=0, atol=0)


def test_the_positive_gradient_does_not_depend_on_pi_old() -> None:
    logp, old, mu, weight = random_case(5, sign=1.0)
    given = tokens(weight, mu, chunk=[i // 4 for i in range(12)])
    first = gradient_of(OPEN, logp, old, given)
    second = gradient_of(OPEN, logp, old - 3.0, given)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_the_negative_coefficient_is_monotone_in_rho_and_stops_at_one() -> None:
    old = tensor(-1)
    found = []
    for change in torch.linspace(-3, 3, 61, dtype=torch.float64):
        logp = (old + change).requires_grad_()
        found.append(float(gradient_of(OPEN, logp, old, tokens(tensor(-1), old))))
    assert found == sorted(found)
    assert found[-1] == 1.0
    assert found[0] < 0.05


@pytest.mark.parametrize("name", PRESETS)
def test_a_reward_of_zero_gives_no_gradient(name: str) -> None:
    logp, old, mu, weight = random_case(6)
    found = gradient_of(PRESETS[name], logp, old, tokens(weight * 0, mu))
    assert found.abs().max() == 0


def test_as_gamma_goes_to_zero_only_the_last_chunk_is_trained() -> None:
    logp, old, mu, _ = random_case(7)
    chunk = [0] * 5 + [1] * 4 + [2] * 3
    smallest = 5e-324
    weight = tensor(*(smallest ** (2 - k) for k in chunk))
    found = gradient_of(OPEN, logp, old, tokens(weight, mu, chunk=chunk))
    assert found[:5].abs().max() == 0
    assert found[5:9].abs().max() <= smallest
    close(found[9:], -1, -1, -1)


@pytest.mark.parametrize("name", PRESETS)
def test_infinite_ratios_and_log_probabilities_of_nothing_stay_finite(name: str) -> None:
    logp, old, mu, weight = random_case(8)
    old, mu = old.clone(), mu.clone()
    old[0], old[1] = -2000.0, 2000.0
    mu[2], mu[3] = -math.inf, math.nan
    chunk = [i // 2 for i in range(12)]
    parts = evolve(PRESETS[name], mask="chunk") if name != "reinforce" else PRESETS[name]
    found = gradient_of(parts, logp, old, tokens(weight, mu, chunk=chunk))
    assert torch.isfinite(found).all()


def test_a_floor_masks_the_other_side() -> None:
    terms, _ = golden(evolve(IPA, mask_floor=0.1), 1.0)
    assert terms.unmasked.tolist() == [False] * 5 + [True]


def test_the_sign_can_be_the_trajectorys_own() -> None:
    logp, old, mu, _ = random_case(9)
    old = old + 1.0  # So that rho is below 1, and its coefficient too.
    weight = torch.full((12,), -1.0, dtype=torch.float64)
    given = evolve(tokens(weight, mu), positive=torch.ones(12, dtype=torch.bool))
    by_weight = gradient_of(OPEN, logp, old, given)
    by_trajectory = gradient_of(evolve(OPEN, sign="trajectory"), logp, old, given)
    torch.testing.assert_close(by_trajectory, -weight, rtol=0, atol=0)
    assert (by_weight <= 1.0).all()
    assert not torch.equal(by_weight, by_trajectory)


def test_a_products_ratio_is_that_of_the_probabilities() -> None:
    logp, old, mu, weight = random_case(10, sign=-1.0)
    terms = evaluate(PRESETS["topr"], logp, old, tokens(weight, mu))
    wanted = float(torch.exp((logp.detach() - old).sum()))
    assert terms.ratio.tolist() == pytest.approx([wanted] * 12)


@pytest.mark.parametrize(
    ("preset", "weight", "expected"),
    [
        # Ratios 2, 1/2, 1/4: their product is 1/4, for every token of the failure.
        ("topr", -1.0, (0.25, 0.25, 0.25)),
        # clamp(2) = 1, clamp(1/2) = 1/2, clamp(1/4) = 1/4: token by token.
        ("token-tis", -1.0, (1.0, 0.5, 0.25)),
        ("topr", 1.0, (-1.0, -1.0, -1.0)),
        ("token-tis", 1.0, (-1.0, -1.0, -1.0)),
    ],
)
def test_topr_clamps_the_trajectorys_ratio_and_token_tis_each_tokens(
    preset: str, weight: float, expected: tuple[float, ...]
) -> None:
    old = tensor(-3, -1, -0.5)
    logp = (old + tensor(math.log(2), math.log(1 / 2), math.log(1 / 4))).requires_grad_()
    given = tokens(tensor(weight, weight, weight), old, chunk=[0, 1, 1])
    close(gradient_of(PRESETS[preset], logp, old, given), *expected)


def test_topr_clamps_the_ratio_of_a_likelier_failure_to_one() -> None:
    old = tensor(-3, -1)
    logp = (old + tensor(math.log(4), math.log(1 / 2))).requires_grad_()
    given = tokens(tensor(-1, -1), old)
    close(gradient_of(PRESETS["topr"], logp, old, given), 1.0, 1.0)
    close(gradient_of(PRESETS["token-tis"], logp, old, given), 1.0, 0.5)


def test_forced_tokens_play_no_part_in_a_ratio_or_mask() -> None:
    logp, old, mu, weight = random_case(11, sign=-1.0)
    sampled = [True] * 8 + [False] * 4
    weight = weight * torch.tensor(sampled)
    given = tokens(weight, mu, sampled=sampled)
    found = gradient_of(OPEN, logp, old, given)
    alone = tokens(weight[:8], mu[:8])
    part = logp.detach()[:8].requires_grad_()
    torch.testing.assert_close(found[:8], gradient_of(OPEN, part, old[:8], alone))
    assert found[8:].abs().max() == 0


def test_imitation_is_added_as_the_log_likelihood_of_eq_10() -> None:
    logp, old, mu, weight = random_case(12)
    wanted = torch.rand(12, dtype=torch.float64)
    plain = gradient_of(OPEN, logp, old, tokens(weight, mu))
    both = gradient_of(OPEN, logp, old, tokens(weight, mu, imitation=wanted))
    torch.testing.assert_close(both, plain - wanted)


def test_options_replace_single_parts_of_a_preset() -> None:
    chosen = resolve_objective(ObjectiveOptions(preset="gspo", clip_high=0.5, mask="chunk"))
    assert chosen == evolve(PRESETS["gspo"], clip_high=0.5, mask="chunk")
    assert resolve_objective("ipa") is PRESETS["ipa"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"preset": "ppo", "clip_low": 2.0}, "clip_low"), ({"preset": "ipa", "mask_floor": 0.0}, "m")],
)
def test_numbers_out_of_range_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObjectiveOptions(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"preset": "ipa", "mask_floor": 3.0},
            "'mask_floor' is 3, above 'mask_threshold', which is 2",
        ),
        (
            {"preset": "grpo", "mask_threshold": 4.0},
            "'mask_threshold' is without effect in grpo: it needs mask: token or chunk or",
        ),
        (
            {"preset": "ipa", "clip_high": 0.3},
            "'clip_high' is without effect in ipa: it needs positive or negative: clip or bound",
        ),
        (
            {"preset": "grpo", "normaliser_constant": 2048.0},
            "'normaliser_constant' is without effect in grpo: it needs normaliser: constant",
        ),
    ],
)
def test_parts_that_contradict_the_preset_or_do_nothing_in_it_are_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ObjectiveOptions(**fields)


def test_a_part_that_is_switched_off_beside_its_number_is_accepted() -> None:
    chosen = ObjectiveOptions(preset="ipa", mask="none", mask_threshold=4.0)
    assert resolve_objective(chosen).mask == "none"
