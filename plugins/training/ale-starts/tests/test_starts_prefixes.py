"""Values of every prefix of stored episodes, in the run's real loop and real folders."""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale._run.run import Run
from ale._run.start import resume
from ale.runs import RunReader
from ale.testing.builders import conversation
from ale.types import CompletionRequest, Episode, Message, ToolCall, replace
from ale.values import EpisodeValues
from ale_starts.options import PrefixOptions
from ale_starts.prefixes import chosen, prefixed, values_of

Finish = Callable[[Run], Any]
SOLUTION = ("mkdir w", "echo one > w/a", "tr a-z A-Z < w/a > w/b; cat w/b")


class Coin:
    """At each turn does the solution's next command with the probability 0.75, else spoils it.

    V of a state from which k commands are left is 0.75^k, and 0 once it is spoiled.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)

    def __call__(self, request: CompletionRequest) -> Message:
        at = request.turn
        if at >= len(SOLUTION):
            return _called(at, "finish", summary="Done.")
        right = self.rng.random() < 0.75
        return _called(at, "shell", command=SOLUTION[at] if right else "rm -rf w")


def _called(turn: int, tool: str, **arguments: str) -> Message:
    call = ToolCall(id=f"call_{turn}_0", name=tool, arguments=json.dumps(arguments))
    return Message(role="assistant", tool_calls=(call,))


@pytest.fixture
async def source(workplace: Any, finish: Finish, another_task: Any) -> Run:
    """Eight episodes of each of two tasks."""
    workplace.shop.tasks = [another_task(), another_task("lower")]
    workplace.shop.answer = Coin()
    run = workplace.prepared({"type": "initial"}, rollouts=8, concurrency=1)
    await finish(run)
    return run


def options(source: Run, **given: Any) -> PrefixOptions:
    return PrefixOptions(run=source.store.path, **given)


async def measured(
    workplace: Any, finish: Finish, source: Run, rollouts: int, **given: Any
) -> tuple[Run, Sequence[EpisodeValues]]:
    workplace.shop.answer = Coin(1)
    starts = {"type": "prefixes", "run": str(source.store.path), **given}
    run = workplace.prepared(starts, rollouts=rollouts, concurrency=1, trains=False)
    await finish(run)
    return run, values(run, options(source, **given))


def values(run: Run, given: PrefixOptions) -> Sequence[EpisodeValues]:
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for episode in run.store.reader.episodes:
        key = (episode.task_id, episode.start)
        won, n = counts.get(key, (0, 0))
        counts[key] = (won + (episode.reward == 1.0), n + 1)
    return list(values_of(prefixed(chosen(RunReader(given.run), given), "exact"), counts))


async def test_every_state_of_successes_and_failures_is_valued(
    workplace: Any, finish: Finish, source: Run
) -> None:
    _, found = await measured(workplace, finish, source, 60)
    by_id = {episode.id: episode for episode in source.store.reader.episodes}
    outcomes = [by_id[each.episode_id].reward for each in found]
    assert set(outcomes) == {0.0, 1.0}
    assert max(sum(e.task_id == t for e in found) for t in ("upper", "lower")) == 4
    for each in found:
        turns = by_id[each.episode_id].trajectory.turns
        commands = [json.loads(t.completion.message.tool_calls[0].arguments) for t in turns]
        assert len(each.states) == len(turns) + 1
        assert each.trials[-1] == 1
        assert each.successes[-1] == by_id[each.episode_id].reward
        good = True
        for p in range(len(turns)):
            left = len(SOLUTION) - p
            v = 0.75 ** max(0, left) if good else 0.0
            assert each.successes[p] / each.trials[p] == pytest.approx(v, abs=0.2), (each, p)
            good = good and (p >= 3 or commands[p]["command"] == SOLUTION[p])


async def test_states_that_began_alike_are_sampled_from_once(
    workplace: Any, finish: Finish, source: Run
) -> None:
    run, found = await measured(workplace, finish, source, 2)
    states = {(each.task_id, state) for each in found for state in each.states}
    planned = len(list(run.store.reader.episodes))
    ends = sum(state.startswith("end.") for _, state in states)
    assert planned == 2 * (len(states) - ends) + ends
    assert planned < sum(2 * (len(each.states) - 1) + 1 for each in found)


async def test_a_valuation_continues_where_it_was_interrupted(
    workplace: Any, finish: Finish, source: Run
) -> None:
    run, _ = await measured(workplace, finish, source, 2)
    before = {episode.id for episode in run.store.reader.episodes}
    path = run.store.path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:7]))
    (run.store.path / "index.jsonl").unlink(missing_ok=True)
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    episodes = [episode.id for episode in again.store.reader.episodes]
    assert set(episodes) == before
    assert len(episodes) == len(before)


def test_successes_and_failures_of_a_task_are_chosen_in_turn(source: Run) -> None:
    picked = chosen(source.store.reader, options(source, per_task=4))
    rewards = [e.reward for e in picked if e.task_id == picked[0].task_id]
    assert sorted(rewards) == [0.0, 0.0, 1.0, 1.0]
    assert len(chosen(source.store.reader, options(source, episodes=3))) == 3


def test_the_order_in_which_episodes_ended_makes_no_difference(source: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(source.store.path, other)
    lines = (other / "episodes.jsonl").read_text().splitlines(keepends=True)
    (other / "episodes.jsonl").write_text("".join(reversed(lines)))
    for per_task in (3, 8):
        given = options(source, per_task=per_task)
        first, second = (
            [(each.episode.id, each.states) for each in prefixed(chosen(run, given), "exact")]
            for run in (source.store.reader, RunReader(other))
        )
        assert first == second


def test_other_observations_make_another_state(source: Run) -> None:
    episode = next(iter(source.store.reader.episodes))
    first = episode.trajectory.turns[0]
    seen = replace(first.observations[0], content="something else")
    turns = (replace(first, observations=(seen,)), *episode.trajectory.turns[1:])
    other = replace(episode, id="other", trajectory=replace(episode.trajectory, turns=turns))
    one, two = prefixed([episode, other], "exact")
    assert one.states[0] == two.states[0] == ""
    assert not {*one.states[1:]} & {*two.states[1:]}


def test_an_answer_that_was_cut_off_is_replayed_as_one(source: Run) -> None:
    episode = next(iter(source.store.reader.episodes))
    first = episode.trajectory.turns[0]
    cut = replace(first, completion=replace(first.completion, finish_reason="length"))
    trajectory = replace(episode.trajectory, turns=(cut, *episode.trajectory.turns[1:]))
    changed: Episode = replace(episode, trajectory=trajectory)
    whole, cut_off = prefixed([episode, changed], "exact")
    assert whole.states[1] != cut_off.states[1]
    expert: Any = cut_off.demonstration.expert(1)
    request = CompletionRequest(messages=(), conversation=conversation(), turn=0)
    assert expert.finish_reason(request) == "length"
