"""Contract kit for objectives. It needs torch, which it imports when a test runs."""

import pickle
import random
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest
from attrs import evolve, fields, frozen

from ale.protocols import Objective, Terms, Tokens

NORMALISERS = ("trajectories", "constant", "tokens", "kept-tokens", "trajectory-tokens")
_STEP = 1e-6
_SCALARS = ("reinforcement", "imitation", "kl", "entropy")


@frozen(kw_only=True, eq=False)
class Given:
    """The arguments of `Objective.evaluate`, in double precision."""

    tokens: Tokens
    logp: Any
    old_logp: Any
    entropy: Any

    def of(self, objective: Objective) -> Terms:
        """The objective's terms."""
        return objective.evaluate(self.tokens, self.logp, self.old_logp, self.entropy)

    def gradients(self, objective: Objective) -> tuple[Any, Any]:
        """The gradients of the loss by logp and by entropy, each (T,); None without entropy."""
        logp = self.logp.clone().requires_grad_()
        entropy = None if self.entropy is None else self.entropy.clone().requires_grad_()
        evolve(self, logp=logp, entropy=entropy).of(objective).loss.backward()
        return logp.grad, None if entropy is None else entropy.grad


def random_tokens(objective: Objective, seed: int, *, trajectories: int = 4) -> Given:
    """Trajectories of up to three chunks of up to four tokens, with what the objective needs.

    Some tokens are forced, some of these are imitated, and some trajectories have no credit.
    """
    torch = import_module("torch")
    rng = random.Random(seed)
    columns: dict[str, list[Any]] = {each.name: [] for each in fields(Tokens)}
    chunk = -1
    for trajectory in range(trajectories):
        credited, positive = trajectory == 0 or rng.random() < 0.8, rng.random() < 0.5
        for _ in range(rng.randint(1, 3)):
            chunk += 1
            weight = rng.uniform(-1, 1) if credited else 0.0
            for _ in range(rng.randint(1, 4)):
                sampled = rng.random() < 0.8
                imitated = not sampled and rng.random() < 0.5
                columns["weight"].append(weight if sampled else 0.0)
                columns["imitation"].append(rng.random() if imitated else 0.0)
                columns["behaviour_logp"].append(-rng.random() - 0.1)
                columns["sampled"].append(sampled)
                columns["positive"].append(positive)
                columns["chunk_id"].append(chunk)
                columns["trajectory_id"].append(trajectory)
                columns["regularised"].append(float(sampled) / 10)
                columns["reference_logp"].append(-rng.random() - 0.1)
    integers = {"chunk_id", "trajectory_id"}
    booleans = {"sampled", "positive"}
    made = {
        name: torch.tensor(
            column,
            dtype=torch.int64
            if name in integers
            else torch.bool
            if name in booleans
            else torch.float64,
        )
        for name, column in columns.items()
    }
    if not (objective.needs_reference or objective.needs_entropy):
        made["regularised"] = 0 * made["regularised"]
    if not objective.needs_reference:
        del made["reference_logp"]
    n = len(columns["weight"])

    def near(other: Any, by: float) -> Any:
        noise = torch.tensor([rng.uniform(-by, by) for _ in range(n)], dtype=torch.float64)
        return other + noise

    old = near(made["behaviour_logp"], 0.1)
    entropy = torch.tensor([rng.random() for _ in range(n)], dtype=torch.float64)
    return Given(
        tokens=Tokens(**made),
        logp=near(old, 0.3),
        old_logp=old,
        entropy=entropy if objective.needs_entropy else None,
    )


def part_of(given: Given, chosen: Any) -> Given:
    """The tokens where `chosen` is true, (T,), as a micro-batch of their own."""
    torch = import_module("torch")
    columns = {each.name: getattr(given.tokens, each.name) for each in fields(Tokens)}
    own = {name: None if value is None else value[chosen] for name, value in columns.items()}
    for name in ("chunk_id", "trajectory_id"):
        own[name] = torch.unique(own[name], return_inverse=True)[1]
    return Given(
        tokens=Tokens(**own),
        logp=given.logp[chosen],
        old_logp=given.old_logp[chosen],
        entropy=None if given.entropy is None else given.entropy[chosen],
    )


def by_differences(value: Callable[[Any], Any], at: Any) -> Any:
    """The gradient of a number by each of T values, from differences; (T,)."""
    torch = import_module("torch")
    found = []
    for step in torch.eye(len(at), dtype=at.dtype) * _STEP:
        with torch.no_grad():
            found.append((value(at + step) - value(at - step)) / (2 * _STEP))
    return torch.stack(found)


class ObjectiveContract:
    """The contract of every objective. Override `objective`."""

    @pytest.fixture
    def objective(self) -> Objective:
        """The objective to test."""
        raise NotImplementedError("override the fixture 'objective'")

    def at_ratio_one(self, tokens: Tokens) -> Any:
        """The gradient by logp where all log-probabilities are equal, (T,): the policy gradient.

        Override it for an objective with another.
        """
        return -(tokens.weight + tokens.imitation)

    def test_what_it_needs_is_said(self, objective: Objective) -> None:
        assert type(objective.needs_reference) is bool
        assert type(objective.needs_entropy) is bool
        assert objective.normaliser in NORMALISERS

    @pytest.mark.parametrize("seed", range(4))
    def test_the_loss_is_a_number_and_the_terms_have_a_value_per_token(
        self, objective: Objective, seed: int
    ) -> None:
        given = random_tokens(objective, seed)
        given = evolve(given, logp=given.logp.requires_grad_())
        terms = given.of(objective)
        assert isinstance(terms, Terms)
        assert terms.loss.shape == ()
        assert terms.loss.requires_grad, "the loss does not depend on logp"
        for each in fields(Terms):
            value = getattr(terms, each.name)
            if value is not None and each.name != "loss":
                assert not value.requires_grad, f"{each.name} has a gradient: detach it"
                assert value.shape == (() if each.name in _SCALARS else given.logp.shape), each.name

    @pytest.mark.parametrize("seed", range(6))
    def test_the_gradient_is_that_of_the_loss(self, objective: Objective, seed: int) -> None:
        given = random_tokens(objective, seed)
        by_logp, by_entropy = given.gradients(objective)
        _close(by_logp, by_differences(_value(objective, given), given.logp))
        if by_entropy is not None:
            _close(
                by_entropy,
                by_differences(
                    lambda entropy: evolve(given, entropy=entropy).of(objective).loss,
                    given.entropy,
                ),
            )

    @pytest.mark.parametrize("seed", range(6))
    def test_where_nothing_has_changed_it_is_the_policy_gradient(
        self, objective: Objective, seed: int
    ) -> None:
        given = random_tokens(objective, seed)
        logp = given.tokens.behaviour_logp
        reference = None if given.tokens.reference_logp is None else logp
        tokens = evolve(given.tokens, reference_logp=reference)
        same = evolve(given, tokens=tokens, logp=logp, old_logp=logp)
        _close(same.gradients(objective)[0], self.at_ratio_one(tokens))

    @pytest.mark.parametrize("seed", range(4))
    def test_a_token_without_weight_has_no_gradient_whatever_its_ratio(
        self, objective: Objective, seed: int
    ) -> None:
        torch = import_module("torch")
        given = random_tokens(objective, seed)
        first = given.tokens.trajectory_id == 0
        weightless = {
            name: torch.where(first, torch.zeros_like(value), value)
            for name in ("weight", "imitation", "regularised")
            if (value := getattr(given.tokens, name)) is not None
        }
        far = torch.where(first, given.old_logp + 1000.0, given.logp)
        given = evolve(given, tokens=evolve(given.tokens, **weightless), logp=far)
        found, _ = given.gradients(objective)
        assert bool(torch.isfinite(found).all()), "0 times an infinite ratio is no number"
        assert not found[first].any(), "tokens without weight have a gradient"

    @pytest.mark.parametrize("seed", range(4))
    def test_the_sum_over_micro_batches_is_that_of_the_whole(
        self, objective: Objective, seed: int
    ) -> None:
        torch = import_module("torch")
        given = random_tokens(objective, seed)
        group = given.tokens.trajectory_id % 2
        pieces = [part_of(given, group == number) for number in (0, 1)]
        losses = [each.of(objective).loss for each in pieces]
        _close(torch.stack(losses).sum(), given.of(objective).loss)
        whole, _ = given.gradients(objective)
        for number, piece in enumerate(pieces):
            _close(piece.gradients(objective)[0], whole[group == number])

    def test_another_process_has_the_same(self, objective: Objective) -> None:
        given = random_tokens(objective, 0)
        sent: Sequence[Any] = pickle.loads(pickle.dumps([objective]))
        _close(given.of(sent[0]).loss, given.of(objective).loss)


def _value(objective: Objective, given: Given) -> Callable[[Any], Any]:
    """The loss as a function of logp, with its gradient.

    A coefficient that an objective states carries no gradient: it is held, and multiplies logp.
    """
    torch = import_module("torch")
    at = given.of(objective)

    def value(logp: Any) -> Any:
        terms = evolve(given, logp=logp).of(objective)
        if at.coefficient is None:
            return terms.loss
        weight = given.tokens.weight * (1.0 if at.correction is None else at.correction)
        used = (weight != 0) if at.unmasked is None else (weight != 0) & at.unmasked
        front = torch.where(used, at.coefficient * weight, torch.zeros_like(weight))
        others = [each for each in (terms.kl, terms.entropy) if each is not None]
        return sum(others, -((front + given.tokens.imitation) * logp).sum())

    return value


def _close(found: Any, wanted: Any) -> None:
    import_module("torch").testing.assert_close(found, wanted, rtol=1e-6, atol=1e-8)
