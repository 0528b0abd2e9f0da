"""TensorBoard's event files as a sink for points. Neither TensorFlow nor torch is needed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-not-found,unused-ignore]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-not-found,unused-ignore]
from tensorboard.plugins.text.summary_v2 import text_pb  # type: ignore[import-not-found,unused-ignore]
from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-not-found,unused-ignore]

from ale.types import RunStarted
from ale_trackers.tensorboard.options import TensorBoardOptions
from ale_trackers.tracking import Point, Tracker

FINISH_TIMEOUT_S = 10.0
"""How long the end of the run waits for pending writes."""
FLUSH_S = 2.0
"""Longest time until a value is in the file; TensorBoard's default is two minutes."""


def make(options: TensorBoardOptions) -> object:
    """The observer."""
    return Tracker(
        _open,
        name="tensorboard",
        window=options.window,
        finish_timeout_s=FINISH_TIMEOUT_S,
    )


@contextmanager
def _open(started: RunStarted) -> Iterator[Callable[[Point], None]]:
    directory = Path(started.directory) / "tensorboard"
    writer = EventFileWriter(str(directory), max_queue_size=1000, flush_secs=FLUSH_S)
    try:
        writer.add_event(Event(wall_time=started.at, summary=_config(started)))
        yield lambda point: writer.add_event(_event(point))
    finally:
        writer.close()


def _config(started: RunStarted) -> Summary:
    text = json.dumps(dict(started.config), indent=2, default=str)
    indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown's code block
    return text_pb("config", indented)


def _event(point: Point) -> Event:
    event = Event(wall_time=point.at, step=point.index)
    for name, value in point.values.items():
        event.summary.value.add(tag=name, simple_value=value)
    return event
