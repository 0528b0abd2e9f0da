"""The observer keeps the contract of observers."""

from pathlib import Path

import pytest

from ale.plugin import BuildContext
from ale.testing.observer import ObserverContract, ended, finished
from ale.types import Score, replace
from ale_bench.art.observer import ArtObserver
from ale_bench.plugin import ale_observers


class TestArt(ObserverContract):
    @pytest.fixture
    def observer(self) -> object:
        (component,) = ale_observers()
        return component.build(None, BuildContext())


def test_the_totals_count_what_ran_out_of_time_or_was_damaged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    observer = ArtObserver()
    late = Score(criterion="tests", passed=False, value=0.0, timed_out=True)
    for number, more in ((0, {"scores": (late,)}), (1, {"metadata": {"damaged": "no shell"}})):
        event = ended(number, 0.0)
        observer.ale_episode_finished(replace(event, episode=replace(event.episode, **more)))
    observer.ale_run_finished(finished(Path("/no/run")))
    told = capsys.readouterr().err
    assert "  Graded, but out of time: 1\n" in told
    assert "  Graded, with a sandbox that the agent damaged: 1\n" in told
