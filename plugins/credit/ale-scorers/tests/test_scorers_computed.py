"""Scorers that compute: rules, a combination, and a weak one."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.protocols import StepScorer
from ale.testing.builders import episode, task, turn
from ale.testing.credit import chunk_per_turn
from ale.testing.scorer import ScorerContract, scoring_context
from ale.types import Chunk, StepScore, Task, Turn
from ale_scorers.options import CombinedOptions
from ale_scorers.plugin import ale_step_scorers
from ale_scorers.scorers import diff_lines

DIFF = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n same\n"


def build(name: str, **options: Any) -> StepScorer:
    component = next(one for one in ale_step_scorers() if one.name == name)
    assert component.options is not None
    made: StepScorer = component.build(component.options(**options), BuildContext())
    return made


def scored(
    scorer: StepScorer,
    *turns: Turn,
    earlier: Mapping[str, Sequence[StepScore]] | None = None,
    of: Task | None = None,
) -> list[StepScore]:
    one = episode(1.0, *turns)
    context = scoring_context(one, of, earlier)
    return list(asyncio.run(scorer.score(context, chunk_per_turn(one.trajectory))))


class TestRules(ScorerContract):
    @pytest.fixture
    def scorer(self) -> StepScorer:
        return build("rules")


class TestHackable(ScorerContract):
    @pytest.fixture
    def scorer(self) -> StepScorer:
        return build("hackable")


class TestCombined(ScorerContract):
    @pytest.fixture
    def scorer(self) -> StepScorer:
        return build("combined", weights={"one": 1.0, "two": 2.0})

    def earlier(self, chunks: Sequence[Chunk]) -> Mapping[str, Sequence[StepScore]]:
        silent = [StepScore(abstained="off") for _ in chunks]
        return {"one": silent, "two": [StepScore(value=0.5) for _ in chunks]}


def test_what_is_long_costs_from_the_limit_on() -> None:
    rules = build("rules", max_chars=100)
    # The line break between text and arguments counts, but here are no arguments.
    found = scored(rules, *(turn("x" * n) for n in (50, 100, 150, 500)))
    assert [score.value for score in found] == [1.0, 1.0, 0.5, 0.0]
    assert found[2].text == "length costs 0.5"


def test_the_same_call_again_costs_its_share() -> None:
    look, other = ("sh", "ls"), ("sh", "pwd")
    found = scored(
        build("rules"), turn(calls=[look]), turn(calls=[look]), turn(calls=[look, other])
    )
    assert [score.value for score in found] == [1.0, 0.0, 0.5]


def test_the_same_call_twice_in_one_chunk_is_not_a_repetition_of_an_earlier_one() -> None:
    (found,) = scored(build("rules"), turn(calls=[("sh", "ls"), ("sh", "ls")]))
    assert found.value == 1.0


def test_failed_calls_cost_their_share_and_costs_multiply() -> None:
    calls = [("sh", "a"), ("sh", "b")]
    failed = turn(calls=calls, errors=["exit code 1", None])
    (found,) = scored(build("rules", failed_calls=0.5), failed)
    assert found.value == 0.75
    first, second = scored(build("rules"), failed, failed)
    assert (first.value, second.value) == (0.5, 0.0)


def test_a_large_diff_costs_also_in_arguments() -> None:
    assert diff_lines(DIFF) == 2
    assert diff_lines(DIFF.replace("\n", "\\n")) == 2
    assert diff_lines("- one\n- two\n+ three") == 0
    rules = build("rules", max_diff_lines=1)
    arguments = DIFF.replace("\n", "\\n")
    found = scored(rules, turn(DIFF), turn(calls=[("patch", arguments)]))
    assert [score.value for score in found] == [0.0, 0.0]


def test_an_empty_turn_has_no_value() -> None:
    (found,) = scored(build("rules"), turn(" "))
    assert found == StepScore(abstained="neither a text nor a call")


def test_a_rule_that_is_off_costs_nothing() -> None:
    rules = build("rules", max_chars=None, max_diff_lines=None, repeated_calls=0, failed_calls=0)
    found = scored(rules, turn("x" * 99_999 + DIFF * 999, calls=[("sh", "a")], errors=["no"]))
    assert found[0].value == 1.0


def of(*values: float | None) -> list[StepScore]:
    return [StepScore(abstained="off") if v is None else StepScore(value=v) for v in values]


def test_weights_count_as_if_an_abstention_were_not_there() -> None:
    combined = build("combined", weights={"a": 1.0, "b": 3.0}, floor=0.25)
    earlier = {"a": of(1.0, 1.0, None, None), "b": of(0.0, None, 0.5, None)}
    found = scored(combined, *[turn("x")] * 4, earlier=earlier)
    assert [score.value for score in found] == [0.25, 1.0, 0.5, None]
    assert found[3].abstained == "too few values; a: off; b: off"


def test_below_the_floor_there_is_no_value() -> None:
    combined = build("combined", weights={"a": 1.0, "b": 3.0}, floor=0.5)
    earlier = {"a": of(1.0, None), "b": of(None, 0.5)}
    found = scored(combined, turn("x"), turn("y"), earlier=earlier)
    assert [score.value for score in found] == [None, 0.5]


def test_a_kind_of_environment_has_weights_of_its_own() -> None:
    weights = {"a": 1.0}
    combined = build("combined", weights=weights, environments={"swe": {"b": 1.0}})
    earlier = {"a": of(0.25), "b": of(0.75)}
    swe = task(metadata={"environment": "swe"})
    assert scored(combined, turn("x"), earlier=earlier, of=swe)[0].value == 0.75
    assert scored(combined, turn("x"), earlier=earlier)[0].value == 0.25
    assert getattr(combined, "reads") == ["a", "b"]  # noqa: B009 (of another protocol)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"weights": {}}, "at least one"),
        ({"weights": {"a": 0.0}}, "above 0"),
        ({"weights": {"a": 1.0}, "environments": {"shell": {"a": 1.0}}}, "chat, terminal"),
    ],
)
def test_weights_that_mean_nothing_are_refused(options: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        CombinedOptions(**options)


def test_the_weak_scorer_is_deceived_by_keywords_and_padding() -> None:
    found = scored(build("hackable"), turn("2 + 2 = 5"), turn("Verified. " * 5), turn("x" * 1000))
    assert [score.value for score in found] == [9 / 2000, 1.0, 0.5]
