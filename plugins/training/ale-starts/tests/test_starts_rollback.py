"""Where `rollback` goes, as a machine that is told of one step after the other."""

from collections.abc import Sequence
from typing import Any

import pytest

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import Start, StartScheme
from ale.testing.builders import task
from ale.testing.starts import next_message, replayed, rolled_out
from ale.types import Episode, Task
from ale_starts.build import rollback
from ale_starts.options import RollbackOptions

FIVE = task("five", solution=("a", "b", "c", "d"))
"""A task whose expert has five turns: four commands and the end."""


def scheme(**options: Any) -> StartScheme:
    return rollback(RollbackOptions(**{"min_rollouts": 4, **options}), BuildContext())


class Walk:
    """One task, asked and told step by step."""

    def __init__(self, scheme: StartScheme, task: Task = FIVE) -> None:
        self.scheme, self.task, self.step = scheme, task, 0

    @property
    def start(self) -> Start:
        (start,) = self.scheme.plan(self.step, [self.task], 4)
        return start

    def after(self, *won: int, of: int = 4, turns: int = 2) -> list[str]:
        """Steps with so many successes each; the starts of those that follow."""
        names = []
        for successes in won:
            episodes = [
                rolled_out(self.start, step=self.step, rollout=i, reward=reward, turns=turns)
                for i, reward in enumerate([1.0] * successes + [0.0] * (of - successes))
            ]
            self.scheme.learn(self.step, iter(episodes))
            self.step += 1
            names.append(self.start.name)
        return names


def test_it_starts_where_only_the_experts_last_turn_is_left() -> None:
    start = Walk(scheme()).start
    assert (start.name, start.rollouts) == ("p4of5", 4)
    assert len(replayed(start)) == 4


def test_the_experts_next_action_moves_back_with_the_start() -> None:
    walk = Walk(scheme())
    following = [next_message(walk.start)]
    for _ in range(4):
        walk.after(4)
        following.append(next_message(walk.start))
    assert walk.start.name == ""
    calls = [message.tool_calls[0] for message in following if message is not None]
    assert calls[0].name == "finish"
    assert [call.arguments[-3:-2] for call in calls[1:]] == ["d", "c", "b", "a"]


def test_it_moves_back_whenever_success_reaches_the_threshold_until_the_beginning() -> None:
    names = Walk(scheme(threshold=0.75)).after(3, 2, 3, 4, 4, 4)
    assert names == ["p3of5", "p3of5", "p2of5", "p1of5", "", ""]


def test_the_rate_is_over_the_newest_steps_that_hold_enough_rollouts() -> None:
    walk = Walk(scheme(threshold=0.75, min_rollouts=6))
    # 0 of 4 is too few to look at; 4 of 8 is too low; the newest 8 are then all successes.
    assert walk.after(0, 4, 4) == ["p4of5", "p4of5", "p3of5"]


def test_counts_begin_anew_at_every_start() -> None:
    walk = Walk(scheme(threshold=0.75, min_rollouts=8))
    assert walk.after(4, 4, 0, 4, 4) == ["p4of5", "p3of5", "p3of5", "p3of5", "p2of5"]


def test_a_stride_takes_several_turns_at_once_and_ends_at_the_beginning() -> None:
    assert Walk(scheme(stride=3)).after(4, 4, 4) == ["p1of5", "", ""]


def test_it_moves_forward_only_if_it_may_and_never_past_the_last_turn() -> None:
    assert Walk(scheme()).after(4, 0, 0) == ["p3of5", "p3of5", "p3of5"]
    assert Walk(scheme(forward=True)).after(4, 1, 0, 0) == ["p3of5", "p3of5", "p4of5", "p4of5"]
    assert Walk(scheme(forward=True)).after(0, 0) == ["p4of5", "p4of5"]


def test_from_the_beginning_it_may_move_forward_too() -> None:
    walk = Walk(scheme(forward=True, stride=4))
    assert walk.after(4, 0) == ["", "p4of5"]


def test_a_task_whose_expert_has_one_turn_starts_at_its_beginning() -> None:
    walk = Walk(scheme(forward=True), task("one", solution=()))
    assert walk.after(4, 0) == ["", ""]
    assert walk.start.expert is None


def test_broken_rollouts_are_no_failures() -> None:
    walk = Walk(scheme(min_rollouts=4))
    # Of four rollouts three broke, and the store gives only the graded one.
    assert walk.after(1, 1, 1, of=1) == ["p4of5"] * 3
    assert walk.after(1, of=1) == ["p3of5"]


def test_a_task_waits_for_its_next_turn_to_be_drawn() -> None:
    walk = Walk(scheme())
    walk.after(4)
    other = task("other", solution=("x",))
    for step in (1, 2, 3):
        (start,) = walk.scheme.plan(step, [other], 4)
        assert start.name == "p1of2"
        walk.scheme.learn(step, iter(()))
    walk.step = 4
    assert walk.start.name == "p3of5"


def test_tasks_without_an_expert_are_an_error_that_names_each() -> None:
    tasks = [FIVE, task("bare"), task("plain")]
    with pytest.raises(InputError) as raised:
        scheme().plan(0, tasks, 4)
    assert [p.message for p in raised.value.problems] == [
        "task 'bare' has no expert",
        "task 'plain' has no expert",
    ]
    starts = scheme(missing="initial").plan(0, tasks, 4)
    assert [start.name for start in starts] == ["p4of5", "", ""]


def success(of: Task, step: int, turns: int) -> Sequence[Episode]:
    return [
        rolled_out(Start(task_id=of.id, rollouts=1), step=step, rollout=0, reward=1, turns=turns)
    ]


def test_rollouts_start_inside_an_own_success_once_there_is_one() -> None:
    bare = task("bare")
    walk = Walk(scheme(expert="own", fallback_expert="initial"), bare)
    assert walk.after(0) == [""]
    # One success of three turns among four rollouts is below the threshold.
    (name,) = walk.after(1, turns=3)
    assert name.startswith("p2of3.")
    assert [turn.completion.message.content for turn in replayed(walk.start)] == ["I try."] * 2


def test_an_own_success_is_not_needed_where_the_beginning_succeeds_often() -> None:
    walk = Walk(scheme(expert="own", fallback_expert="initial"), task("bare"))
    assert walk.after(4, 4, turns=3) == ["", ""]


def test_a_better_own_success_is_taken_when_the_start_moves() -> None:
    walk = Walk(scheme(expert="own"))
    # From turn 4 of 5 on the policy needs only one turn of its own: as long as the solution.
    assert walk.after(1, turns=1) == ["p4of5"]
    (name,) = walk.after(3, turns=1)
    assert name.startswith("p3of5.")


def test_a_longer_success_does_not_take_the_place_of_a_shorter_one_unless_newer_ones_do() -> None:
    for prefer, turns in (("shortest", 4), ("newest", 6)):
        walk = Walk(scheme(expert="own", fallback_expert="initial", prefer=prefer), task("bare"))
        walk.scheme.learn(0, iter(success(walk.task, 0, 4)))
        walk.scheme.learn(1, iter(success(walk.task, 1, 6)))
        walk.step = 2
        (name,) = walk.after(0)
        assert name.startswith(f"p{turns - 1}of{turns}.")


def test_a_demonstration_is_no_success_of_the_policy() -> None:
    made = scheme(expert="own", fallback_expert="initial", demonstrations=1)
    (start,) = made.plan(0, [FIVE], 4)
    made.learn(0, iter([rolled_out(start, step=0, rollout=0, reward=1.0, turns=1)]))
    walk = Walk(made)
    walk.step = 1
    assert walk.after(0) == [""]
