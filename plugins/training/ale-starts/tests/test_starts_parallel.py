"""Where `parallel` and `initial` start, and what demonstrations are."""

from collections import Counter
from typing import Any

import pytest

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import Start, StartScheme
from ale.testing.builders import episode, task
from ale.testing.starts import next_message, replayed, rolled_out, solved
from ale.types import Episode, replace
from ale_figures.forks import place_named
from ale_starts.build import initial, parallel
from ale_starts.options import InitialOptions, ParallelOptions

EIGHT = task("eight", solution=tuple("abcdefg"))


def scheme(seed: int = 0, **options: Any) -> StartScheme:
    return parallel(ParallelOptions(**options), BuildContext(seed=seed))


def places(starts: Any) -> list[int]:
    found = [place_named(start.name) for start in starts]
    return [0 if place is None else place.p for place in found]


def test_the_beginning_is_always_an_anchor_and_anchors_are_distinct() -> None:
    for step in range(50):
        found = places(scheme(anchors=4).plan(step, [EIGHT], 8))
        assert found[0] == 0
        assert len({*found}) == 4
        assert found == sorted(found)
        assert max(found) <= 7


def test_every_start_has_the_experts_next_action() -> None:
    starts = scheme(anchors=8).plan(0, [EIGHT], 8)
    following = [next_message(start) for start in starts]
    calls = [message.tool_calls[0] for message in following if message is not None]
    assert [call.arguments for call in calls[:7]] == [f'{{"command": "{c}"}}' for c in "abcdefg"]
    assert [call.name for call in calls[7:]] == ["finish"], "from p = K - 1 the last turn is next"
    assert {start.expert_turns for start in starts} == {8}
    assert [len(replayed(start)) for start in starts] == [*range(8)], "and does not say it"


def test_every_other_place_is_drawn_about_equally_often() -> None:
    made = scheme(anchors=2)
    drawn = Counter(places(made.plan(step, [EIGHT], 2))[1] for step in range(1400))
    assert {*drawn} == {*range(1, 8)}
    # 200 expected each; 5 standard deviations of a binomial are 65.
    assert all(135 < n < 265 for n in drawn.values())


def test_the_rollouts_are_split_as_evenly_as_can_be() -> None:
    starts = scheme(anchors=4).plan(0, [EIGHT], 10)
    assert [start.rollouts for start in starts] == [3, 3, 2, 2]


def test_fewer_rollouts_or_turns_than_anchors_make_fewer_anchors() -> None:
    assert len(scheme(anchors=4).plan(0, [EIGHT], 2)) == 2
    short = task("short", solution=("a",))
    assert [(s.name, s.rollouts) for s in scheme(anchors=4).plan(0, [short], 8)] == [
        ("", 4),
        ("p1of2", 4),
    ]
    (only,) = scheme(anchors=4).plan(0, [task("none", solution=())], 8)
    assert (only.name, only.rollouts) == ("", 8)


def test_anchors_follow_the_seed_the_step_and_the_task() -> None:
    other = task("other", solution=EIGHT.solution)

    def of(made: StartScheme, step: int, which: Any = EIGHT) -> list[list[int]]:
        return [places(made.plan(at, [which], 4)) for at in range(step, step + 10)]

    base = of(scheme(), 0)
    assert of(scheme(), 0) == base
    assert base != of(scheme(seed=1), 0)
    assert base != of(scheme(), 10)
    assert base != of(scheme(), 0, other)
    # Pinned: a run that is resumed with another version of Python must draw the same.
    assert base[:3] == PINNED


PINNED = [[0, 2, 3, 5], [0, 4, 6, 7], [0, 1, 2, 4]]


def test_a_shorter_own_success_is_the_expert_from_the_next_step_on() -> None:
    made = scheme(anchors=8, expert="own")
    assert len(made.plan(0, [EIGHT], 8)) == 8
    won = rolled_out(Start(task_id="eight", rollouts=1), step=0, rollout=0, reward=1.0, turns=3)
    made.learn(0, iter([won]))
    beginning, one, two = made.plan(1, [EIGHT], 8)
    assert beginning.name == ""
    assert one.name.startswith("p1of3.")
    assert two.name == one.name.replace("p1", "p2")


def test_an_episode_that_only_an_expert_made_is_not_the_policys_own() -> None:
    made = scheme(anchors=2, expert="own")
    start = made.plan(0, [EIGHT], 2)[1]
    made.learn(0, iter([rolled_out(start, step=0, rollout=0, reward=1.0, turns=0)]))
    assert "." not in made.plan(1, [EIGHT], 2)[1].name


def test_initial_starts_every_task_at_its_beginning() -> None:
    made = initial(InitialOptions(), BuildContext())
    starts = made.plan(0, [task("a"), task("b")], 3)
    assert starts == [Start(task_id="a", rollouts=3), Start(task_id="b", rollouts=3)]


def test_the_first_steps_demonstrate_whole_solutions_to_be_imitated() -> None:
    made = initial(InitialOptions(demonstrations=2), BuildContext())
    tasks = [EIGHT, task("bare")]
    for step in (0, 1):
        (start,) = made.plan(step, tasks, 4)
        assert (start.task_id, start.name, start.rollouts) == ("eight", "demo", 1)
        names = [turn.completion.message.tool_calls[0].name for turn in replayed(start)]
        assert names == ["shell"] * 7 + ["finish"]
    assert [start.rollouts for start in made.plan(2, tasks, 4)] == [4, 4]


def test_demonstrations_end_when_enough_probes_succeed() -> None:
    def made() -> StartScheme:
        return initial(InitialOptions(demonstrations=9, until=0.5, probes=2), BuildContext())

    def own(reward: float, start: str = "") -> Episode:
        return replace(episode(reward, task_id="eight"), start=start)

    scheme = made()
    probed = [(s.name, s.rollouts) for s in scheme.plan(0, [EIGHT], 4)]
    assert probed == [("demo", 1), ("", 1)]
    episodes_by_step = [
        [own(1.0, "demo"), own(0.0), own(0.0)],
        [own(1.0, "demo"), own(1.0), own(0.0)],
    ]
    scheme.learn(0, episodes_by_step[0])
    assert [s.name for s in scheme.plan(1, [EIGHT], 4)] == ["demo", ""]
    scheme.learn(1, episodes_by_step[1])
    assert [(s.name, s.rollouts) for s in scheme.plan(2, [EIGHT], 4)] == [("", 4)]
    resumed = made()
    for step, episodes in enumerate(episodes_by_step):
        resumed.learn(step, episodes)
    assert [(s.name, s.rollouts) for s in resumed.plan(2, [EIGHT], 4)] == [("", 4)]
    assert [s.name for s in resumed.plan(1, [EIGHT], 4)] == ["demo", ""]


def test_the_same_demonstrations_may_follow_each_other_until_the_end_of_the_run() -> None:
    options = InitialOptions(demonstrations=9, until=0.5, probes=1, after="same-demonstrations")
    scheme = initial(options, BuildContext())
    drawn = [solved(6)[2 * i : 2 * i + 2] for i in range(3)]
    shown = []
    for step in (0, 1):
        starts = scheme.plan(step, drawn[step], 4)
        shown_now = [start for start in starts if start.demonstration]
        episodes = [
            rolled_out(start, step=step, rollout=0, reward=1.0, turns=0) for start in shown_now
        ]
        probe = episode(float(step), task_id=drawn[step][0].id)
        scheme.learn(step, [*episodes, probe])
        shown.append([(start.task_id, contents(start)) for start in shown_now])
    again = [scheme.plan(step, drawn[2], 4) for step in (2, 3, 4)]
    assert [[(s.task_id, contents(s)) for s in starts] for starts in again] == [*shown, shown[0]]
    assert all(start.demonstration for starts in again for start in starts)
    with pytest.raises(ValueError, match="needs demonstrations above 0"):
        InitialOptions(after="same-demonstrations")


def test_a_task_that_was_demonstrated_twice_in_a_step_is_repeated_once() -> None:
    """A stream may learn in one step from what was drawn for two."""
    options = InitialOptions(demonstrations=1, after="same-demonstrations")
    scheme = initial(options, BuildContext())
    (start,) = scheme.plan(0, [EIGHT], 4)
    twice = [rolled_out(start, step=step, rollout=0, reward=1.0, turns=0) for step in (0, 1)]
    scheme.learn(0, twice)
    assert [each.task_id for each in scheme.plan(1, [EIGHT], 4)] == ["eight"]


def contents(start: Start) -> list[object]:
    return [turn.completion.message for turn in replayed(start)]


def test_nothing_to_demonstrate_is_an_error() -> None:
    made = initial(InitialOptions(demonstrations=1), BuildContext())
    with pytest.raises(InputError, match="none of the 1 tasks of step 0 has an expert"):
        made.plan(0, [task("bare")], 4)


def test_a_stored_run_is_named_with_the_experts_that_need_one_and_only_with_them() -> None:
    for options in ({"expert": "episodes"}, {"expert_run": "runs/x"}):
        with pytest.raises(ValueError, match="expert_run"):
            ParallelOptions(**options)  # type: ignore[arg-type]
