"""Which parts of an objective can act, by settings; every expectation is from the formulas."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve, field, frozen

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import Objective, ObjectiveFacts, Terms, Tokens
from ale.types import Credit, Group, replace
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.options import PRESETS, KlOptions, ObjectiveOptions, PolicyOptions


@frozen
class Scheme:
    """Discounted returns, with a weight for failures; or the reward less the group's mean."""

    gamma: float = 1.0
    failure: float = 0.0
    baseline: bool = False
    breaks: bool = field(default=False)

    def assign(self, group: Group) -> Sequence[Credit]:
        if self.breaks:
            raise KeyError("what made-up episodes lack")
        rewards = [one.episode.reward or self.failure for one in group.rollouts]
        mean = sum(rewards) / len(rewards) if self.baseline else 0.0
        found = []
        for one, reward in zip(group.rollouts, rewards, strict=True):
            n = len(one.chunks)
            weights = tuple((reward - mean) * self.gamma ** (n - k - 1) for k in range(n))
            found.append(
                Credit(
                    episode_id=one.episode.id,
                    scheme="made",
                    rewards=(0.0,) * (n - 1) + (reward,),
                    returns=weights,
                    weights=weights,
                )
            )
        return found


def told(
    make_llm: Callable[..., Any],
    scheme: Scheme,
    *,
    objective: Any = "ipa",
    staleness: int = 0,
    **options: Any,
) -> ObjectiveFacts:
    chosen = PolicyOptions(objective=objective, **options)
    trainer = policy_trainer(chosen, BuildContext(staleness=staleness))
    trainer.attach(make_llm())
    facts = trainer.explain_objective(scheme, 2)
    assert facts is not None
    return facts


def idle(facts: ObjectiveFacts) -> dict[str, str]:
    return {part.name: part.idle for part in facts.parts if part.idle}


ALIKE = "no stale samples, and sampler and trainer compute alike"
BOTH = "1 update per step, no negative weight"


def test_ipa_with_its_defaults_is_reinforce_on_successes(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(gamma=0.95))
    assert idle(facts) == {"ratio": BOTH, "clamp": BOTH, "mask": ALIKE}
    assert facts.reduces_to == (
        "reinforce on successes alone, discounted (the same as ipa-baseline, topr, token-tis)"
    )


def test_without_a_discount_that_is_filtered_imitation(make_llm: Any) -> None:
    facts = told(make_llm, Scheme())
    assert facts.reduces_to.startswith(
        "reinforce on successes alone, every chunk alike: filtered imitation"
    )


def test_failures_that_weigh_need_a_second_update_only(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(gamma=0.95, failure=-0.2))
    one = "1 update per step"
    assert idle(facts) == {"ratio": one, "clamp": one, "mask": ALIKE}
    assert facts.reduces_to.startswith("reinforce (the same as")


@pytest.mark.parametrize("more", [{"epochs": 2}, {"minibatches": 2}])
def test_with_more_updates_and_failures_the_clamp_acts(make_llm: Any, more: Any) -> None:
    facts = told(make_llm, Scheme(failure=-0.2), **more)
    assert idle(facts) == {"mask": ALIKE}
    assert facts.reduces_to == ""


def test_with_more_updates_the_negative_weights_are_still_missing(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(), epochs=2)
    assert idle(facts) == {
        "ratio": "no negative weight",
        "clamp": "no negative weight",
        "mask": ALIKE,
    }


def test_stale_samples_wake_the_mask_and_not_the_ratio(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(failure=-0.2), staleness=2, correction="none", sync="copy")
    assert idle(facts) == {"ratio": "1 update per step", "clamp": "1 update per step"}


def test_the_samplers_own_probabilities_wake_the_ratio_and_not_the_mask(make_llm: Any) -> None:
    facts = told(
        make_llm, Scheme(failure=-0.2), staleness=2, old_policy="rollout_engine", sync="copy"
    )
    assert idle(facts) == {"mask": "whatever the ratios"}


def test_lower_precision_wakes_the_mask(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(failure=-0.2), epochs=2, precision="bf16")
    assert idle(facts) == {}


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_is_a_plain_gradient_at_the_first_update(make_llm: Any, preset: str) -> None:
    facts = told(make_llm, Scheme(baseline=True), objective=preset)
    parts = {part.name for part in facts.parts}
    assert set(idle(facts)) == parts
    if parts and PRESETS[preset].kl is None:
        normaliser = PRESETS[preset].normaliser
        divided = "" if normaliser == "trajectories" else f", divided by {normaliser}"
        assert facts.reduces_to.partition(" (")[0] == f"reinforce{divided}"


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_part_of_every_preset_acts_where_nothing_holds_it(make_llm: Any, preset: str) -> None:
    facts = told(
        make_llm,
        Scheme(baseline=True),
        objective=preset,
        epochs=2,
        staleness=2,
        correction="truncate",
        sync="copy",
    )
    assert idle(facts) == {}


def test_a_mask_beyond_every_ratio_is_idle_whatever_the_settings(make_llm: Any) -> None:
    objective = ObjectiveOptions(preset="ipa", mask_threshold=1e12)
    facts = told(make_llm, Scheme(failure=-1.0), objective=objective, epochs=2)
    assert idle(facts) == {"mask": "whatever the ratios"}


def test_a_scheme_that_cannot_credit_examples_may_give_any_weight(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(breaks=True), epochs=2)
    assert idle(facts) == {"mask": ALIKE}


class Doubled(Objective):
    """A loss of another package, with parts that are not known."""

    def evaluate(self, tokens: Tokens, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        return Terms(loss=-2.0 * (tokens.weight * logp).sum() - (tokens.imitation * logp).sum())


def test_an_objective_of_another_package_has_no_known_parts(make_llm: Any) -> None:
    facts = told(make_llm, Scheme(), objective=Doubled())
    assert facts == ObjectiveFacts(name="Doubled")


class NoWeight(Scheme):
    def assign(self, group: Group) -> list[Credit]:
        return [replace(each, weights=(0.0,) * len(each.weights)) for each in super().assign(group)]


def test_an_estimator_without_a_gradient_is_refused_where_no_credit_teaches(make_llm: Any) -> None:
    def chosen(estimator: Any) -> Any:
        return evolve(PRESETS["reinforce"], kl=KlOptions(coefficient=1.0, estimator=estimator))

    with pytest.raises(InputError, match="nothing would be learned"):
        told(make_llm, NoWeight(), objective=chosen("k1"))
    told(make_llm, NoWeight(), objective=chosen("k2"))
    told(make_llm, Scheme(), objective=chosen("k1"))
