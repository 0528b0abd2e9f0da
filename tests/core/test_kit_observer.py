"""The kit for observers finds what is wrong with these."""

import asyncio
import time
from pathlib import Path

import pluggy
import pytest

from ale.plugin import hookimpl
from ale.testing.observer import ObserverContract, stories
from ale.types import EpisodeFinished, EpisodeStage, RunFinished, RunStarted, StepFinished


class Counter:
    """Does nothing wrong."""

    def __init__(self) -> None:
        self.n = 0

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        self.n += 1


class TestCounter(ObserverContract):
    @pytest.fixture
    def observer(self) -> object:
        return Counter()


kit = ObserverContract()


def test_the_kit_names_a_hook_that_was_not_marked() -> None:
    class Unmarked(Counter):
        def ale_step_finished(self, event: StepFinished) -> None: ...

    with pytest.raises(AssertionError, match="ale_step_finished"):
        kit.test_answers_event_hooks_that_exist_with_arguments_that_exist(Unmarked())


def test_the_kit_refuses_an_observer_that_answers_nothing() -> None:
    with pytest.raises(AssertionError, match="no method is marked"):
        kit.test_answers_event_hooks_that_exist_with_arguments_that_exist(object())


def test_the_kit_refuses_an_unknown_hook_and_an_unknown_argument() -> None:
    class Misspelt:
        @hookimpl
        def ale_episode_ended(self, event: object) -> None: ...

    class Curious:
        @hookimpl
        def ale_run_started(self, event: object, store: object) -> None: ...

    for observer in (Misspelt(), Curious()):
        with pytest.raises(pluggy.PluginValidationError):
            kit.test_answers_event_hooks_that_exist_with_arguments_that_exist(observer)


async def test_the_kit_finds_an_observer_that_needs_a_reward(tmp_path: Path) -> None:
    class Sum:
        total = 0.0

        @hookimpl
        def ale_episode_finished(self, event: EpisodeFinished) -> None:
            self.total += event.episode.reward  # type: ignore[operator]

    failed = []
    for story in stories(tmp_path):
        try:
            await kit.test_survives_any_run(Sum(), story, tmp_path)
        except TypeError:
            failed.append(story)
    assert failed == [
        "all kinds of episodes",
        "all broken",
        "total unknown",
        "more than planned",
        "trained",
    ]


async def test_the_kit_finds_an_observer_that_forgets_no_cancelled_episode(tmp_path: Path) -> None:
    class Strict:
        def __init__(self) -> None:
            self.running: set[str] = set()

        @hookimpl
        def ale_episode_stage(self, event: EpisodeStage) -> None:
            self.running.add(event.episode_id)

        @hookimpl
        def ale_run_finished(self, event: RunFinished) -> None:
            assert not self.running

    with pytest.raises(AssertionError):
        await kit.test_survives_any_run(Strict(), "cancelled", tmp_path)


async def test_the_kit_finds_a_slow_hook(tmp_path: Path) -> None:
    class Slow:
        @hookimpl
        def ale_step_finished(self, event: StepFinished) -> None:
            time.sleep(0.06)

    with pytest.raises(AssertionError, match="ale_step_finished"):
        await kit.test_returns_at_once(Slow(), tmp_path)


async def test_the_kit_finds_a_close_that_hangs(tmp_path: Path) -> None:
    class Hasty(ObserverContract):
        last_hook_s = 0.01

    class SlowEnd:
        @hookimpl
        def ale_run_finished(self, event: RunFinished) -> None:
            time.sleep(0.02)

    with pytest.raises(AssertionError):
        await Hasty().test_returns_at_once(SlowEnd(), tmp_path)


async def test_the_kit_finds_a_print(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Chatty:
        @hookimpl
        def ale_run_started(self, event: RunStarted) -> None:
            print("hello")

    with pytest.raises(AssertionError):
        await kit.test_leaves_standard_output_alone(Chatty(), tmp_path, capfd)


async def test_the_kit_finds_a_task_that_is_left_behind(tmp_path: Path) -> None:
    class Ticking:
        @hookimpl
        def ale_run_started(self, event: RunStarted) -> None:
            self.task = asyncio.create_task(asyncio.sleep(60))

    observer = Ticking()
    with pytest.raises(AssertionError):
        await kit.test_leaves_no_task_on_the_event_loop(observer, tmp_path)
    observer.task.cancel()


async def test_the_kit_finds_an_observer_that_keeps_the_ids(tmp_path: Path) -> None:
    class Keeper:
        def __init__(self) -> None:
            self.ids: list[str] = []

        @hookimpl
        def ale_episode_finished(self, event: EpisodeFinished) -> None:
            self.ids.append(event.episode.id)

    class Hasty(ObserverContract):
        settle_s = 0.1

    with pytest.raises(AssertionError):
        await Hasty().test_holds_no_more_after_ten_thousand_episodes(Keeper(), tmp_path)
