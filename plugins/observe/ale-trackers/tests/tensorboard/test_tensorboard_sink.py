"""Real event files, read back with TensorBoard's own reader."""

from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.testing.observer import (
    ObserverContract,
    ended,
    finished,
    notify,
    register,
    report,
    started,
)
from ale_trackers.plugin import ale_observers
from ale_trackers.tensorboard.options import TensorBoardOptions


@pytest.fixture(autouse=True)
def sdk() -> None:
    pytest.importorskip(
        "tensorboard", reason="tensorboard is not installed; the session of its own has it"
    )


def build(**fields: Any) -> object:
    (component,) = (each for each in ale_observers() if each.name == "tensorboard")
    return component.build(TensorBoardOptions(**fields), BuildContext())


class TestTensorBoard(ObserverContract):
    @pytest.fixture
    def observer(self, sdk: None) -> object:
        return build()

    @pytest.mark.long
    async def test_holds_no_more_after_ten_thousand_episodes(
        self, observer: object, tmp_path: Path
    ) -> None:
        await super().test_holds_no_more_after_ten_thousand_episodes(observer, tmp_path)


def read(directory: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(directory)).Reload()


def scalars(events: Any, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_event_files_contain_what_was_logged(tmp_path: Path) -> None:
    events = [started(tmp_path, n_done=2), ended(0, 1.0), ended(1, None), ended(2, 0.0), report(3)]
    notify(register(build()), [*events, finished(tmp_path)])
    seen = read(tmp_path / "tensorboard")
    assert scalars(seen, "episode/reward") == [(3, 1.0), (5, 0.0)]
    assert scalars(seen, "episode/broken") == [(3, 0.0), (4, 1.0), (5, 0.0)]
    assert scalars(seen, "mean/reward") == [(3, 1.0), (5, 0.5)]
    assert scalars(seen, "seconds/agent") == [(3, 12.0), (4, 12.0), (5, 12.0)]
    assert scalars(seen, "train/loss") == [(3, 0.5)]


def test_the_resolved_config_is_written_as_text(tmp_path: Path) -> None:
    notify(register(build()), [started(tmp_path), finished(tmp_path)])
    [text] = read(tmp_path / "tensorboard").Tensors("config")
    assert b'"max_steps": 40' in text.tensor_proto.string_val[0]


def test_a_resumed_run_adds_to_the_same_series(tmp_path: Path) -> None:
    notify(register(build()), [started(tmp_path), ended(0, 1.0), finished(tmp_path, "cancelled")])
    again = [started(tmp_path, n_done=1, n_graded=1, n_succeeded=1), ended(1, 0.0)]
    notify(register(build()), [*again, finished(tmp_path)])
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert scalars(read(tmp_path / "tensorboard"), "episode/reward") == [(1, 1.0), (2, 0.0)]
