"""Credit against known values: a tree whose every V is enumerated, not sampled."""

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from ale.errors import InputError
from ale.testing import builders
from ale.testing.credit import chunk_per_turn
from ale.types import Chunk, Rollout, Span
from ale.values import (
    CRITICS,
    EpisodeValues,
    Measured,
    Rates,
    ValuedEpisode,
    Values,
    compare,
    edges,
    halves,
    rates,
    read_values,
    worths,
    write_values,
)

ROLLOUTS = 32
DEPTH = 3
"""Choices in an episode; then `finish`, which is worth nothing."""
MEASURED = Measured(rollouts=ROLLOUTS, policy="p", tokenizer="t", sandbox="s")


def won(choices: Sequence[int], task: int) -> bool:
    """A task is done if two of three choices are right; which of two is right depends on it."""
    return sum(choice == (task >> k) % 2 for k, choice in enumerate(choices)) >= 2


def value(choices: Sequence[int], task: int) -> Fraction:
    """V after some choices, under a policy that takes choice 0 with the probability 2/3."""
    if len(choices) == DEPTH:
        return Fraction(won(choices, task))
    return Fraction(2, 3) * value([*choices, 0], task) + Fraction(1, 3) * value([*choices, 1], task)


def tree(
    seed: int = 0, n: int = 96, tasks: int = 8, rollouts: int = ROLLOUTS
) -> tuple[Values, list[ValuedEpisode]]:
    """Episodes of the policy, and binomial counts of every state that they pass."""
    rng = random.Random(seed)
    counts: dict[tuple[int, tuple[int, ...]], int] = {}

    def count(task: int, choices: tuple[int, ...]) -> int:
        v = value(choices, task)
        draws = (rng.random() < v for _ in range(rollouts))
        return counts.setdefault((task, choices), sum(draws))

    episodes, found = {}, []
    for number in range(n):
        task = number % tasks
        choices = tuple(int(rng.random() < 1 / 3) for _ in range(DEPTH))
        name, reward = f"0-t{task}-{number}", float(won(choices, task))
        prefixes = [choices[:k] for k in range(DEPTH + 1)]
        each = EpisodeValues(
            episode_id=name,
            task_id=f"t{task}",
            states=(*(f"s{''.join(map(str, p))}" for p in prefixes), f"end{number}"),
            successes=(*(count(task, p) for p in prefixes), int(reward)),
            trials=(*(rollouts,) * (DEPTH + 1), 1),
        )
        turns = [builders.turn(str(choice)) for choice in (*choices, "finish")]
        episode = builders.episode(reward, *turns, task_id=f"t{task}", episode_id=name)
        rollout = Rollout(episode=episode, chunks=chunk_per_turn(episode.trajectory))
        exact = [value(p, task) for p in prefixes]
        true = [*(float(b - a) for a, b in pairwise(exact)), 0.0]
        weights = {
            "truth": true,
            "outcome": [reward] * (DEPTH + 1),
            "shuffled": rng.sample(true, len(true)),
            "late": [0.0, *true[:-1]],
            "negated": [-x for x in true],
            "nothing": [0.0] * (DEPTH + 1),
        }
        episodes[name] = each
        found.append(ValuedEpisode(values=each, rollout=rollout, weights=weights))
    return Values(measured=MEASURED, episodes=episodes), found


@pytest.fixture(scope="module")
def scores() -> dict[str, object]:
    values, episodes = tree()
    made = compare(values, episodes)
    return {"whole": made, **{each.scheme: each for each in made.schemes}}


def test_the_true_worth_reaches_the_ceiling(scores: dict) -> None:
    whole, truth = scores["whole"], scores["truth"]
    assert (whole.episodes, whole.tasks, whole.chunks) == (96, 8, 96 * 4)
    assert truth.pearson.value == pytest.approx(whole.ceiling, abs=0.03)
    assert truth.sign > 0.95
    assert truth.order.value > 0.9
    assert truth.on_nothing < 0.05


def test_credit_that_says_nothing_of_an_episodes_chunks_orders_them_by_chance(scores: dict) -> None:
    assert scores["outcome"].order.value == 0.5
    assert scores["outcome"].on_nothing > 0.25
    assert scores["nothing"].order.value == scores["nothing"].sign == 0.5
    assert math.isnan(scores["nothing"].pearson.value)


@pytest.mark.parametrize("wrong", ["shuffled", "late"])
def test_credit_in_the_wrong_place_is_far_below_the_truth(scores: dict, wrong: str) -> None:
    assert scores[wrong].pearson.high < scores["truth"].pearson.low
    assert scores[wrong].order.high < scores["truth"].order.low
    assert scores[wrong].on_nothing > 5 * scores["truth"].on_nothing


def test_negated_credit_is_the_mirror_image(scores: dict) -> None:
    truth, negated = scores["truth"], scores["negated"]
    assert negated.pearson.value == pytest.approx(-truth.pearson.value)
    assert negated.spearman == pytest.approx(-truth.spearman)
    assert negated.sign == pytest.approx(1 - truth.sign)
    assert negated.order.value == pytest.approx(1 - truth.order.value)


def test_an_oracle_from_other_rollouts_is_below_the_ceiling_and_one_from_the_same_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values, episodes = tree(rollouts=8)
    apart = {each.scheme: each for each in compare(values, episodes).schemes}
    ceiling = compare(values, episodes).ceiling
    assert apart["(oracle)"].pearson.value == pytest.approx(ceiling**2, abs=0.03)
    assert apart["(oracle)"].pearson.value < 0.95 * ceiling
    monkeypatch.setattr("ale.values.halves", lambda values, seed: (rates(values),) * 2)
    shared = {each.scheme: each for each in compare(values, episodes).schemes}
    assert shared["(oracle)"].pearson.value == pytest.approx(1.0)


def test_halves_share_no_rollout_and_add_up_to_the_counts() -> None:
    values, _ = tree()
    whole = rates(values)
    for seed in range(5):
        one, other = halves(values, seed)
        for state, v in whole.items():
            assert (one[state] + other[state]) / 2 == pytest.approx(v)
        middle = [s for s, v in whole.items() if 0.2 < v < 0.8]
        noise = [one[s] - other[s] for s in middle]
        assert math.fsum(x * x for x in noise) / len(noise) > 0.01


@pytest.mark.parametrize("name", list(CRITICS))
def test_what_knows_values_beats_the_outcome_alone(scores: dict, name: str) -> None:
    assert scores[name].order.value > scores["outcome"].order.value + 0.05
    assert scores[name].pearson.value > scores["outcome"].pearson.value


def test_intervals_cover_the_truth_of_more_tasks() -> None:
    expected = compare(*tree(seed=99, n=1200), splits=1).schemes[1].pearson.value
    inside = 0
    for seed in range(8):
        made = compare(*tree(seed=seed, n=64), splits=1).schemes[1].pearson
        inside += made.low - 0.02 <= expected <= made.high + 0.02
    assert inside >= 6


def whole_turns(*cuts: int, turns: int = 4) -> list[Chunk]:
    bounds = [*cuts, turns]
    return [
        Chunk(
            index=k,
            kind="made",
            spans=tuple(Span(turn=t, text=(0, 1), calls=(0, 0)) for t in range(a, b)),
        )
        for k, (a, b) in enumerate(pairwise(bounds))
    ]


def test_a_chunk_of_several_turns_is_worth_the_sum_of_them() -> None:
    values, episodes = tree()
    v: Rates = rates(values)
    each = episodes[0]
    fine = worths(each.values, each.rollout.chunks, v)
    assert worths(each.values, whole_turns(0, 2), v) == pytest.approx(
        (sum(fine[:2]), sum(fine[2:]))
    )


def test_a_chunk_within_a_turn_has_no_value() -> None:
    half = [
        Chunk(index=k, kind="made", spans=(Span(turn=0, text=t, calls=(0, 0)),))
        for k, t in enumerate([(0, 1), (1, 2)])
    ]
    with pytest.raises(InputError, match="begins within a turn"):
        edges(half, 1)


def test_a_file_of_values_is_read_as_it_was_written(tmp_path: Path) -> None:
    values, _ = tree()
    write_values(tmp_path / "values.jsonl", values)
    assert read_values(tmp_path / "values.jsonl") == values


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "it is empty"),
        (
            lambda lines: [lines[0], lines[1].replace('"trials":[32', '"trials":[1')],
            "more successes",
        ),
        (lambda lines: [lines[0], lines[1].replace('"trials":[32,', '"trials":[')], "one count"),
        (lambda lines: [lines[0], "{}"], "episode_id"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(
    tmp_path: Path, damage: Callable[[list[str]], list[str]], message: str
) -> None:
    path = tmp_path / "values.jsonl"
    write_values(path, tree()[0])
    path.write_text("\n".join(damage(path.read_text().splitlines())))
    with pytest.raises(InputError, match=message):
        read_values(path)


def test_a_missing_file_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ale data values") as error:
        read_values(tmp_path / "values.jsonl")
    assert str(error.value).count("values.jsonl") == 1
