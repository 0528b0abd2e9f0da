"""The metrics, the thread and the observer that joins them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ale.errors import AleError
from ale.testing.builders import episode, turn
from ale.testing.observer import (
    ObserverContract,
    ended,
    episodes,
    evaluated,
    finished,
    notify,
    register,
    report,
    started,
)
from ale.types import RunStarted, Usage, replace
from ale_trackers.tracking import Means, Point, Tracker, episode_metrics


class Notebook:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.state = "new"

    @contextmanager
    def open(self, started: RunStarted) -> Iterator[Callable[[Point], None]]:
        self.state = f"open for {started.run_id}"
        yield self.points.append
        self.state = "finished"


def tracker(notebook: Notebook, window: int = 100, finish_timeout_s: float = 5.0) -> Tracker:
    return Tracker(notebook.open, name="notebook", window=window, finish_timeout_s=finish_timeout_s)


class TestTracker(ObserverContract):
    @pytest.fixture
    def observer(self) -> object:
        @contextmanager
        def open_sink(started: RunStarted) -> Iterator[Callable[[Point], None]]:
            yield lambda point: None

        return Tracker(open_sink, name="nothing", window=100, finish_timeout_s=5.0)


def test_a_graded_episode_has_a_reward_and_its_tool_errors() -> None:
    assert episode_metrics(ended(0, 0.5).episode) == {
        "episode/broken": 0.0,
        "episode/reward": 0.5,
        "episode/success": 0.0,
        "episode/turns": 2.0,
        "episode/tool_calls": 2.0,
        "episode/tool_errors": 1.0,
        "seconds/sandbox": 0.5,
        "seconds/agent": 12.0,
    }


def test_what_an_expert_began_does_not_count_as_the_policys_own() -> None:
    usage = Usage(prompt_tokens=7, completion_tokens=3)
    own = turn("tried")
    own = replace(own, completion=replace(own.completion, usage=usage))
    given = replace(own, completion=replace(own.completion, forced=True))
    demonstration = replace(episode(1.0, given), start="demonstration")
    started = replace(episode(1.0, given, own), start="solution-1/2")
    metrics = [episode_metrics(each) for each in (demonstration, started, episode(0.0, own))]
    means = Means(window=100)
    assert [means.add(each).get("mean/success") for each in metrics] == [None, None, 0.0]
    assert [each.get("episode/success_from_starts") for each in metrics] == [1.0, 1.0, None]
    assert [each.get("episode/completion_tokens") for each in metrics] == [None, 3.0, 3.0]


def test_a_broken_episode_has_no_reward_at_all() -> None:
    metrics = episode_metrics(ended(0, None).episode)
    assert metrics["episode/broken"] == 1.0
    assert not {"episode/reward", "episode/success"} & set(metrics)


def test_broken_episodes_do_not_lower_the_mean_reward() -> None:
    means = Means(window=100)
    for reward in (1.0, None, None, 0.0):
        last = means.add(episode_metrics(episode(reward)))
    assert (last["mean/reward"], last["mean/broken"]) == (0.5, 0.5)


def test_a_mean_is_over_the_window() -> None:
    means = Means(window=2)
    rewards = [means.add({"episode/reward": r})["mean/reward"] for r in (0.0, 1.0, 1.0)]
    assert rewards == [0.0, 0.5, 1.0]


def test_every_episode_and_every_step_is_sent_in_order_and_the_sink_finished() -> None:
    notebook = Notebook()
    manager = register(tracker(notebook))
    events = [started(Path(), n_done=5), ended(5, 1.0), report(0), ended(6, None), report(1)]
    notify(manager, [*events, finished(Path())])
    assert [(p.axis, p.index) for p in notebook.points] == [
        ("episode", 6),
        ("step", 0),
        ("episode", 7),
        ("step", 1),
    ]
    assert notebook.points[3].values == {
        "train/loss": 0.5,
        "train/rows": 8.0,
        "train/policy_version": 1.0,
    }
    assert notebook.state == "finished"


def test_an_evaluation_is_one_point_of_the_step_after_which_it_was_made() -> None:
    notebook = Notebook()
    manager = register(tracker(notebook))
    notify(manager, [started(Path()), *evaluated(3, 1), finished(Path())])
    (point,) = notebook.points
    assert (point.axis, point.index) == ("step", 3)
    assert point.values == {
        "evaluation/episodes": 4.0,
        "evaluation/success": 0.25,
        "evaluation/reward": 0.25,
    }


def test_an_evaluation_at_temperature_zero_has_a_name_of_its_own() -> None:
    notebook = Notebook()
    manager = register(tracker(notebook))
    *_, event = evaluated(3, 1)
    greedy = replace(event, temperature=0.0)
    notify(manager, [started(Path()), greedy, finished(Path())])
    (point,) = notebook.points
    assert point.values["evaluation/greedy/success"] == 0.25


def test_a_tracker_that_can_not_be_opened_is_raised_by_a_later_hook() -> None:
    @contextmanager
    def refuse(started: RunStarted) -> Iterator[Callable[[Point], None]]:
        raise ConnectionError("no route")
        yield

    manager = register(Tracker(refuse, name="x", window=1, finish_timeout_s=5.0))
    notify(manager, [started(Path())])
    with pytest.raises(ConnectionError, match="no route"):
        notify(manager, [finished(Path())])


def test_a_tracker_that_hangs_does_not_block_the_run() -> None:
    release = threading.Event()

    @contextmanager
    def hang(started: RunStarted) -> Iterator[Callable[[Point], None]]:
        release.wait()
        yield lambda point: None

    manager = register(Tracker(hang, name="x", window=1, finish_timeout_s=0.1))
    notify(manager, [started(Path()), *episodes(range(100))])
    with pytest.raises(AleError, match=r"x: not finished after 0\.1 seconds"):
        notify(manager, [finished(Path())])
    release.set()
