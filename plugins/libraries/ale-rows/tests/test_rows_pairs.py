"""Preference pairs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.runs import Registry
from ale.testing.builders import turn
from ale.types import Completion, Episode, Message, replace
from ale_rows import DpoRow, Report, chat, collect, make_dpo, read_rows, score

from .conftest import acting, asked, tried


@pytest.fixture
def pairs(tmp_path: Path, run: Any, registry: Registry) -> Any:
    """The pairs of some episodes, and the report."""

    def make(
        episodes: Sequence[Episode], pairing: Any, chunker: str = "ale-lite", **options: Any
    ) -> tuple[list[DpoRow], Report]:
        raw, scored, out = (tmp_path / f"{name}.jsonl" for name in ("raw", "scored", "dpo"))
        collect([run(*episodes)], raw)
        score(raw, scored, registry, chunker=chunker)
        report = make_dpo(scored, out, pairing=pairing, **options)
        return list(read_rows(out, DpoRow)), report

    return make


def test_same_trajectory_takes_the_highest_and_the_lowest_chunk(
    pairs: Any, some: Sequence[Episode]
) -> None:
    (row,), _ = pairs([some[0]], "same-trajectory")
    turns = some[0].trajectory.turns
    assert row.prompt == tuple(map(chat, turns[0].prompt))
    assert row.chosen == (chat(Message(role="assistant", content="Done.")),)
    assert row.rejected == (chat(Message(role="assistant", content="I look.")),)
    assert (row.chosen_from.chunk, row.chosen_from.turn) == (4, 2)
    assert (row.rejected_from.chunk, row.rejected_from.turn) == (0, 0)
    assert row.rejected_from.value < row.chosen_from.value == 1.0


def test_same_trajectory_counts_ties_and_single_chunks(pairs: Any, some: Sequence[Episode]) -> None:
    rows, report = pairs(some, "same-trajectory")
    assert len(rows) == report.written == 2
    assert report.read == 4
    assert dict(report.dropped) == {
        "tie: all chunks earned the same": 1,
        "fewer than two chunks with an answer of the model": 1,
    }


def test_a_chunk_in_which_the_model_wrote_nothing_is_no_answer(pairs: Any) -> None:
    (row,), _ = pairs([tried(1.0, acting("", "ls"), turn("Done."))], "same-trajectory")
    assert row.rejected[0].tool_calls is not None
    assert row.rejected[0].tool_calls[0].function.arguments == '{"command": "ls"}'


def test_demonstrations_are_not_compared(pairs: Any) -> None:
    acted = acting("Forced.", "ls")
    forced = replace(acted, completion=replace(acted.completion, forced=True))
    (row,), _ = pairs([tried(1.0, forced, turn("Own."), turn("Done."))], "same-trajectory")
    assert row.rejected[0].content == "Own."


def test_chunks_of_turns_that_did_nothing_are_not_compared(pairs: Any) -> None:
    idle = replace(turn("Hm."), credited=False)
    acted = tried(1.0, idle, acting("", "ls"), turn("Done."))
    (row,), report = pairs([acted], "same-trajectory")
    assert row.rejected[0].tool_calls is not None
    assert report.notes["chunks skipped (the turns did nothing)"] == 1


def test_chunks_over_several_contexts_are_not_compared(pairs: Any) -> None:
    made = tried(1.0, acting("A.", "ls"), *asked("Count. So far: a.", turn("B.")), turn("C."))
    rows, report = pairs([made], "same-trajectory", chunker="twos")
    assert rows == []
    assert report.notes["chunks skipped (over several contexts)"] == 1
    assert dict(report.dropped) == {"fewer than two chunks with an answer of the model": 1}


@pytest.mark.parametrize(("by", "n_pairs", "n_skipped"), [("episode", 1, 0), ("reward", 0, 1)])
def test_answers_without_credit_are_compared_by_the_episode_only(
    pairs: Any, by: str, n_pairs: int, n_skipped: int
) -> None:
    idle = replace(turn("Hm."), credited=False)
    rollouts = [
        tried(1.0, turn("Quick."), rollout=0),
        tried(0.5, idle, turn("Slow."), rollout=1),
    ]
    rows, report = pairs(rollouts, "same-prompt", by=by)
    assert len(rows) == n_pairs
    assert report.notes.get("chunks skipped (the turns did nothing)", 0) == n_skipped


def test_a_margin_leaves_out_pairs_that_are_closer(pairs: Any, some: Sequence[Episode]) -> None:
    rows, report = pairs(some, "same-trajectory", min_margin=0.5)
    assert [row.chosen_from.episode for row in rows] == [some[0].id]
    assert report.dropped["difference below the minimum margin"] == 1


@pytest.mark.parametrize("pairing", ["same-trajectory", "same-prompt"])
def test_an_error_of_rounding_leaves_out_no_pair(
    pairs: Any, some: Sequence[Episode], tmp_path: Path, pairing: Any
) -> None:
    (first, *_), _ = pairs(some, pairing)
    apart = first.chosen_from.value - first.rejected_from.value
    for margin, kept in ((math.nextafter(apart, 2.0), True), (apart + 1e-9, False)):
        out = tmp_path / f"{kept}.jsonl"
        make_dpo(tmp_path / "scored.jsonl", out, pairing=pairing, min_margin=margin)
        found = [(row.chosen, row.rejected) for row in read_rows(out, DpoRow)]
        assert ((first.chosen, first.rejected) in found) == kept


def test_an_error_of_rounding_makes_no_answer_the_better_one(pairs: Any) -> None:
    rewards = (0.3, 0.1 + 0.2)
    rollouts = [tried(each, turn(f"{i}."), rollout=i) for i, each in enumerate(rewards)]
    rows, report = pairs(rollouts, "same-prompt")
    assert rows == []
    assert dict(report.dropped) == {"tie: every answer earned the same": 1}


def test_same_prompt_takes_the_best_and_the_worst_answer(
    pairs: Any, some: Sequence[Episode]
) -> None:
    rows, report = pairs(some, "same-prompt")
    first, second = rows
    assert first.prompt == second.prompt[:2]
    assert first.prompt == tuple(map(chat, some[0].trajectory.turns[0].prompt))
    assert (first.chosen[0].content, first.rejected[0].content) == ("I look.", "I guess.")
    # "I look." was answered twice, in episodes with rewards 1 and 0.5.
    assert (first.chosen_from.value, first.rejected_from.value) == (0.75, 0.0)
    assert len(second.prompt) == 4
    assert second.chosen_from.value == 1.0
    assert second.rejected[0].content == "No idea."
    assert report.read == 5
    assert dict(report.dropped) == {"only one rollout reached the prompt": 3}


def test_same_prompt_counts_equal_answers_and_ties(pairs: Any) -> None:
    rollouts = [
        tried(1.0, acting("Same.", "ls"), turn("One."), rollout=0),
        tried(1.0, acting("Same.", "ls"), turn("Two."), rollout=1),
    ]
    rows, report = pairs(rollouts, "same-prompt")
    assert rows == []
    assert dict(report.dropped) == {
        "every rollout gave the same answer": 1,
        "tie: every answer earned the same": 1,
    }


def test_same_prompt_needs_the_same_text(pairs: Any) -> None:
    other = [tried(1.0, turn("A.")), tried(0.0, turn("B."), goal="Count all.", rollout=1)]
    assert pairs(other, "same-prompt")[0] == []


def test_same_prompt_compares_continuations_of_one_fork(pairs: Any) -> None:
    begun = [acting("I look.", "ls", observations=["a b"]), acting("", "cat a")]
    forks = [
        tried(reward, *begun, turn(text), start="fork-2", rollout=i, id=f"0-count@fork-2-{i}")
        for i, (reward, text) in enumerate([(0.0, "It is 3."), (1.0, "It is 4.")])
    ]
    (row,), _ = pairs(forks, "same-prompt")
    assert len(row.prompt) == 6
    assert (row.chosen[0].content, row.rejected[0].content) == ("It is 4.", "It is 3.")


def test_prompts_that_differ_in_ids_of_calls_are_one(pairs: Any) -> None:
    def with_random_ids(index: int, given: Completion) -> Completion:
        calls = tuple(replace(call, id=f"x{index}") for call in given.message.tool_calls)
        return replace(given, message=replace(given.message, tool_calls=calls))

    first = acting("I look.", "ls")
    turns = [replace(first, completion=with_random_ids(i, first.completion)) for i in (0, 1)]
    rollouts = [
        tried(float(i), turns[i], turn(f"It is {i}."), rollout=i, id=f"0-count-{i}") for i in (0, 1)
    ]
    (row,), _ = pairs(rollouts, "same-prompt")
    assert row.chosen[0].content == "It is 1."


def test_prompts_that_differ_in_the_working_directory_are_one(pairs: Any) -> None:
    rollouts = [
        tried(
            float(i),
            acting("I look.", f"ls /tmp/ale/{name}/work", observations=[f"/tmp/ale/{name}/work/a"]),
            acting(f"Try {i}.", f"cat /tmp/ale/{name}/work/a"),
            rollout=i,
            workdir=f"/tmp/ale/{name}/work",
        )
        for i, name in enumerate(["1f0a", "1f2b", "93cc"])
    ]
    (row,), _ = pairs(rollouts, "same-prompt")
    assert "/tmp/ale/93cc/work." in row.prompt[0].content
    for answer in (row.chosen, row.rejected):
        assert answer[0].tool_calls is not None
        assert "/tmp/ale/93cc/work/a" in answer[0].tool_calls[0].function.arguments
    assert (row.chosen[0].content, row.rejected[0].content) == ("Try 2.", "Try 0.")


def test_prompts_that_differ_in_more_than_a_folder_are_two(pairs: Any) -> None:
    rollouts = [
        tried(1.0, turn("A."), workdir="/tmp/x/work", goal="Count x."),
        tried(0.0, turn("B."), workdir="/tmp/y/work", goal="Count z.", rollout=1),
    ]
    assert pairs(rollouts, "same-prompt")[0] == []


def test_answers_can_be_compared_by_the_credit_of_their_chunk(pairs: Any) -> None:
    rollouts = [
        tried(1.0, turn("Slow."), turn("a"), turn("b"), turn("c"), rollout=0),
        tried(0.5, turn("Quick."), rollout=1),
    ]
    (by_reward,), _ = pairs(rollouts, "same-prompt")
    assert by_reward.chosen[0].content == "Slow."


def test_by_the_credit_of_a_chunk_the_shorter_solution_may_win(pairs: Any) -> None:
    rollouts = [
        tried(1.0, turn("Slow."), turn("a"), turn("b"), turn("c"), rollout=0),
        tried(0.5, turn("Quick."), rollout=1),
    ]
    (by_chunk,), _ = pairs(rollouts, "same-prompt", by="reward")
    assert by_chunk.chosen[0].content == "Quick."
    assert (by_chunk.chosen_from.value, by_chunk.rejected_from.value) == (0.5, 0.25)


def test_collected_episodes_are_enough_for_same_prompt(
    tmp_path: Path, run: Any, some: Sequence[Episode]
) -> None:
    collect([run(*some)], tmp_path / "raw.jsonl")
    report = make_dpo(tmp_path / "raw.jsonl", tmp_path / "dpo.jsonl", pairing="same-prompt")
    assert report.written == 2
    with pytest.raises(InputError, match="ale data score them first"):
        make_dpo(tmp_path / "raw.jsonl", tmp_path / "x.jsonl", pairing="same-prompt", by="weight")
    with pytest.raises(InputError, match="expected 'scored'"):
        make_dpo(tmp_path / "raw.jsonl", tmp_path / "x.jsonl", pairing="same-trajectory")
    assert not (tmp_path / "x.jsonl").exists()


def test_same_trajectory_pairs_cannot_be_compared_by_the_episodes_reward(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        make_dpo(tmp_path / "a", tmp_path / "b", pairing="same-trajectory", by="episode")
