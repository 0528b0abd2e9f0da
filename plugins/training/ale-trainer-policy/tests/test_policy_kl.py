"""The KL term and the entropy term: exact expectations over everything that can be sampled."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.objective import Tokens, evaluate
from ale_trainer_policy.options import (
    PRESETS,
    KlOptions,
    ObjectiveOptions,
    PolicyOptions,
    resolve_objective,
)
from ale_trainer_policy.parts import KL_ESTIMATORS
from ale_trainer_policy.scoring import score
from ale_trainer_policy.tree import pack

ACTIONS = 4


def table(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) of each row."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def gradient(value: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(value, of, retain_graph=True)[0]


def test_k1_and_k3_have_the_kls_value_and_k2_has_not() -> None:
    ours, theirs = (table(ACTIONS, seed=seed).detach().log_softmax(-1) for seed in (0, 1))
    mean = {
        name: float((ours.exp() * estimator(theirs - ours)).sum())
        for name, estimator in KL_ESTIMATORS.items()
    }
    exact = float(kl(ours, theirs))
    assert mean["k1"] == pytest.approx(exact, rel=1e-12)
    assert mean["k3"] == pytest.approx(exact, rel=1e-12)
    assert abs(mean["k2"] - exact) > 0.05


def expected_gradient(estimator: Any, theta: Tensor, reference: Tensor) -> Tensor:
    """Of the loss's KL term, where every action was sampled as often as the policy samples it."""
    logp = theta.log_softmax(-1)
    n = torch.arange(ACTIONS)
    tokens = Tokens(
        weight=torch.zeros(ACTIONS, dtype=torch.float64),
        imitation=torch.zeros(ACTIONS, dtype=torch.float64),
        behaviour_logp=logp.detach(),
        sampled=torch.ones(ACTIONS, dtype=torch.bool),
        positive=torch.ones(ACTIONS, dtype=torch.bool),
        chunk_id=n,
        trajectory_id=n,
        regularised=logp.detach().exp(),
        reference_logp=reference,
    )
    parts = evolve(PRESETS["reinforce"], kl=KlOptions(coefficient=0.3, estimator=estimator))
    return gradient(evaluate(parts, logp, None, tokens).loss, theta) / 0.3


def test_in_a_loss_k2_has_the_kls_gradient_k3_the_other_directions_and_k1_none() -> None:
    theta = table(ACTIONS, seed=0)
    reference = table(ACTIONS, seed=1).detach().log_softmax(-1)
    exact = gradient(kl(theta.log_softmax(-1), reference), theta)
    other = gradient(kl(reference, theta.log_softmax(-1)), theta)
    assert float((exact - other).norm()) > 0.05
    near = {"rtol": 0.0, "atol": 1e-12}
    torch.testing.assert_close(expected_gradient("k2", theta, reference), exact, **near)
    torch.testing.assert_close(expected_gradient("k3", theta, reference), other, **near)
    zero = torch.zeros(ACTIONS, dtype=torch.float64)
    torch.testing.assert_close(expected_gradient("k1", theta, reference), zero, **near)


def test_the_gradient_is_of_each_tokens_distribution_and_leaves_out_what_it_leads_to() -> None:
    """Two tokens: the second's KL depends on which first token is likely; the term ignores that."""
    first, second = table(ACTIONS, seed=0), table(ACTIONS, ACTIONS, seed=1)
    references = [table(*each.shape, seed=9).detach().log_softmax(-1) for each in (first, second)]
    one, two = first.log_softmax(-1), second.log_softmax(-1)
    pairs = list(itertools.product(range(ACTIONS), repeat=2))
    loss = torch.zeros((), dtype=torch.float64)
    for a, b in pairs:
        chance = (one[a] + two[a, b]).exp().detach()
        for logp, reference in ((one[a], references[0][a]), (two[a, b], references[1][a, b])):
            loss = loss + chance * KL_ESTIMATORS["k2"](reference - logp)
    per_context = kl(one, references[0]) + (one.exp().detach() * kl(two, references[1])).sum()
    whole = kl(one, references[0]) + (one.exp() * kl(two, references[1])).sum()
    found, wanted = gradient(loss, first), gradient(per_context, first)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert float((found - gradient(whole, first)).norm()) > 0.05


def test_a_token_that_does_not_count_may_have_any_log_probability() -> None:
    logp = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    tokens = Tokens(
        weight=torch.zeros(2, dtype=torch.float64),
        imitation=torch.zeros(2, dtype=torch.float64),
        behaviour_logp=logp.detach(),
        sampled=torch.tensor([True, False]),
        positive=torch.tensor([True, True]),
        chunk_id=torch.tensor([0, 0]),
        trajectory_id=torch.tensor([0, 0]),
        regularised=torch.tensor([1.0, 0.0], dtype=torch.float64),
        reference_logp=torch.tensor([-1.5, -torch.inf], dtype=torch.float64),
    )
    parts = evolve(PRESETS["reinforce"], kl=KlOptions(coefficient=1.0, estimator="k2"))
    found = gradient(evaluate(parts, logp, None, tokens).loss, logp)
    torch.testing.assert_close(found, torch.tensor([0.5, 0.0], dtype=torch.float64))


def test_grpos_kl_is_the_papers_and_can_be_left_out() -> None:
    paper = resolve_objective("grpo").kl
    assert paper == KlOptions(coefficient=0.04, estimator="k3", to="start")
    assert resolve_objective(ObjectiveOptions(preset="grpo", kl="off")).kl is None
    assert [name for name, parts in PRESETS.items() if parts.needs_reference] == ["grpo"]


@pytest.mark.parametrize("logits_mb", [None, 0.001])
def test_the_entropy_term_has_the_gradient_of_the_exact_entropies(
    lab: Any, logits_mb: float | None
) -> None:
    """Logits at once or in slices; against entropies of plain forward passes."""
    model = lab.tiny_model().double()
    group = lab.credited(
        lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[3, 4, 5, 6, 7])])
    )
    sample = read(lab, group)
    scored = score(model, pack([sample]), logits_mb=logits_mb, entropy_gradient=True)
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(scored.entropy.sum(), parameters)
    logits = model(torch.tensor([[1, 2, 3, 4, 5, 6, 7]])).logits[0, 1:6].log_softmax(-1)
    exact = torch.autograd.grad(-(logits.exp() * logits).sum(), parameters)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def read(lab: Any, group: Any) -> Any:
    from ale_trainer_policy.imitation_options import ImitationOptions
    from ale_trainer_policy.targets import Reinforcement

    target = Reinforcement(objective=PRESETS["reinforce"], imitation=ImitationOptions(when="off"))
    [sample] = target.read(lab.batch_of(group)).samples
    return sample


def trainer(llm: Any, **fields: Any) -> Any:
    objective = ObjectiveOptions(preset="reinforce", **fields)
    made = policy_trainer(PolicyOptions(objective=objective, lr=1e-3), BuildContext())
    made.attach(llm)
    return made


def without_credit(lab: Any, step: int = 0) -> Any:
    turn = lab.TokenTurn(prompt=[1, 2], output=[3, 4, 5])
    episode = lab.TokenEpisode(turns=[turn], reward=0.0, weights=[0.0])
    return lab.batch_of(lab.credited(episode, episode), step=step)


async def test_a_policy_that_has_moved_is_drawn_back_to_its_start(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    """By episodes without any credit too; and by the same term after a resumption."""
    llm = make_llm()
    made = trainer(llm, kl=KlOptions(coefficient=1.0, estimator="k2"))
    quiet = (await made.step(without_credit(lab))).metrics
    assert quiet["trajectories_without_signal"] == 2.0
    assert quiet["updates"] == 0.0, "at the start itself nothing draws it"
    good = lab.TokenEpisode(turns=[lab.TokenTurn(prompt=[1, 2], output=[3, 4, 5])], reward=5.0)
    await made.step(lab.batch_of(lab.credited(good), step=1))
    made.save(tmp_path)
    found = [(await made.step(without_credit(lab, step))).metrics["loss_kl"] for step in (2, 3, 4)]
    assert found[0] > found[1] > found[2] > 0
    again = trainer(make_llm(), kl=KlOptions(coefficient=1.0, estimator="k2"))
    again.load(tmp_path)
    assert (await again.step(without_credit(lab, 2))).metrics["loss_kl"] == found[0]


async def test_the_entropy_term_flattens_what_the_policy_samples_from(
    make_llm: Callable[..., Any], lab: Any
) -> None:
    made = trainer(make_llm(), entropy=0.5)
    found = [(await made.step(without_credit(lab, step))).metrics["entropy"] for step in range(3)]
    assert found[0] < found[1] < found[2]


async def test_another_model_can_be_the_reference_if_its_vocabulary_is_the_same(
    make_llm: Callable[..., Any], lab: Any, tmp_path: Path
) -> None:
    lab.tiny_model(seed=3).save_pretrained(tmp_path / "same")
    lab.tiny_model(vocab_size=32).save_pretrained(tmp_path / "other")

    def attached(name: str) -> Any:
        options = KlOptions(coefficient=0.5, to="reference", model=tmp_path / name)
        return trainer(make_llm(), kl=options)

    report = await attached("same").step(without_credit(lab))
    with torch.no_grad():
        ids = torch.tensor([[1, 2, 3, 4, 5]])
        ours, theirs = (
            lab.tiny_model(seed=seed)(ids).logits.log_softmax(-1)[0, 1:4] for seed in (0, 3)
        )
    at = torch.tensor([3, 4, 5])[:, None]
    x = (theirs - ours).gather(1, at)
    # The mean over the trajectories of the sum over their tokens: Z of `reinforce`.
    assert report.metrics["loss_kl"] == pytest.approx(
        0.5 * float((torch.expm1(x) - x).sum()), rel=1e-4
    )
    messages = {"other": "a vocabulary of 32 tokens", "none": "there is no such folder"}
    for name, message in messages.items():
        with pytest.raises(InputError, match=message) as caught:
            attached(name)
        assert caught.value.problems[0].path == "trainer.objective.kl.model"


def test_a_reference_and_its_folder_need_each_other(tmp_path: Path) -> None:
    for fields in ({"to": "reference"}, {"model": tmp_path}):
        with pytest.raises(ValueError, match="'model' and to: reference need each other"):
            KlOptions(coefficient=0.1, **fields)  # type: ignore[arg-type]
