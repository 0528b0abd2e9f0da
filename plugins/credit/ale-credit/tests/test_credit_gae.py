"""GAE's credit: what a critic that says 0 makes of it, and how that is related to IPA."""

import random
from typing import Any

import pytest

from ale.testing.builders import trajectory, turn
from ale.testing.credit import group_of, random_group, rollout
from ale.types import Chunk, Credit, Gae, Span, Stop, replace
from ale_credit.chunk_schemes import Ipa
from ale_credit.gae import GaeScheme
from ale_credit.options import GaeOptions, IpaOptions


def credit_of(given: Any, **options: Any) -> Credit:
    (credit,) = GaeScheme(GaeOptions(**options)).assign(group_of([given]))
    return credit


def three_turns(reward: float = 1.0, reason: Any = "finished") -> Any:
    made = trajectory(turn("a"), turn("b"), turn("c"))
    return rollout(reward, replace(made, stop=Stop(reason=reason)))


@pytest.mark.parametrize("seed", range(10))
def test_over_chunks_with_lambda_one_and_no_critic_it_is_ipa(seed: int) -> None:
    group = random_group(random.Random(seed))
    ipa = Ipa(IpaOptions(gamma=0.7)).assign(group)
    ours = GaeScheme(GaeOptions(gamma=0.7, lam=1.0, unit="chunk")).assign(group)
    for one, other in zip(ours, ipa, strict=True):
        assert one.weights == pytest.approx(other.weights, rel=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_without_a_critic_lambda_is_one_more_discount(seed: int) -> None:
    """IPA with gamma times lambda: only a critic tells the two apart."""
    group = random_group(random.Random(seed))
    ipa = Ipa(IpaOptions(gamma=0.7 * 0.6)).assign(group)
    ours = GaeScheme(GaeOptions(gamma=0.7, lam=0.6, unit="chunk")).assign(group)
    for one, other in zip(ours, ipa, strict=True):
        assert one.weights == pytest.approx(other.weights, rel=1e-12)


def test_the_credit_says_how_a_critic_is_to_complete_it() -> None:
    credit = credit_of(three_turns(), gamma=0.5, lam=0.5, unit="turn")
    assert credit.gae == Gae(gamma=0.5, lam=0.5, unit="turn", truncated=False)
    assert credit.rewards == (0.0, 0.0, 1.0)
    assert credit.returns == (0.25, 0.5, 1.0)
    assert credit.weights == (0.0625, 0.25, 1.0)


def test_a_turn_without_credit_is_no_unit() -> None:
    """The scheme is not given its chunk, and a critic's trainer has no unit for it."""
    given = three_turns()
    first, _, last = given.chunks
    credit = credit_of(replace(given, chunks=(first, last)), gamma=0.5, lam=0.5, unit="turn")
    assert (credit.returns, credit.weights) == ((0.5, 1.0), (0.25, 1.0))


def test_a_failure_is_not_skipped_as_a_critic_may_have_expected_more() -> None:
    credit = credit_of(three_turns(0.0))
    assert (credit.weights, credit.skipped) == ((0.0, 0.0, 0.0), None)


def test_only_what_the_clock_ended_was_cut_off() -> None:
    """The other limits are part of the task: the state shows how much of them is left."""
    cut = credit_of(three_turns(1.0, "time_limit"))
    assert cut.gae is not None
    assert (cut.gae.truncated, cut.rewards) == (True, (0.0, 0.0, 0.0))
    for reason in ("finished", "gave_up", "max_turns", "max_steps", "context", "agent_error"):
        ended = credit_of(three_turns(0.5, reason))
        assert ended.gae is not None
        assert (ended.gae.truncated, ended.rewards[-1]) == (False, 0.5)
    chosen = credit_of(three_turns(1.0, "max_turns"), bootstrap=("max_turns", "time_limit"))
    assert chosen.gae is not None
    assert chosen.gae.truncated


def chunk(index: int, *spans: tuple[int, int]) -> Chunk:
    """A chunk of tokens of turn 0, and of turn 1 where there is a second range."""
    made = (Span(turn=n, text=(0, 1), calls=(0, 0), tokens=each) for n, each in enumerate(spans))
    return Chunk(index=index, kind="test", spans=tuple(made))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("chunk", (0.5, 1.0)), ("token", (0.5**5, 0.5**2)), ("turn", (0.5, 0.5))],
)
def test_a_chunk_weighs_as_its_first_unit(unit: str, expected: tuple[float, ...]) -> None:
    """Three tokens, and then one of the same turn and two of the next."""
    given = replace(three_turns(), chunks=(chunk(0, (0, 3)), chunk(1, (3, 4), (0, 2))))
    assert credit_of(given, gamma=0.5, lam=1.0, unit=unit).weights == expected


def test_a_chunk_without_tokens_is_no_unit() -> None:
    given = replace(three_turns(), chunks=(chunk(0, (0, 2)), chunk(1, (2, 2)), chunk(2, (2, 2))))
    credit = credit_of(given, gamma=0.5, lam=1.0, unit="token")
    assert credit.returns == (0.5, 1.0, 1.0)
