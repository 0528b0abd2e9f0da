"""Subjects, streams and headers: version 1 of what runs and workers say to each other.

docs/reference/nats.md describes it. A change that an older worker would misread is version 2.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

VERSION = "v1"
PREFIX = f"ale.{VERSION}"

RUNS, JOBS, EPISODES, EVENTS = "ALE_RUN", "ALE_JOB", "ALE_EPISODE", "ALE_EVENT"
"""Streams."""
OBJECTS = "ale_large"
"""Bucket of the object store for what is larger than a message may be."""

OBJECT = "Ale-Object"
"""Header: the name of the object that is the message's body."""
ACK = "Ale-Ack"
"""Header of an episode: the subject on which its job is acknowledged."""

QUEUE_LIMIT = 10_000
"""Most jobs, of all runs together, that a server holds; a run waits while it is full."""
_DAY_S = 86_400.0
_KEPT_S = 7 * _DAY_S
"""What a run that never ended has left is removed after this time."""
_RUNS_KEPT_S = 30 * _DAY_S
_EVENT_BYTES = 1 << 30


def run_token(run_id: str) -> str:
    """A run's id as one token of a subject."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "-", run_id)
    return safe if safe == run_id else f"{safe}-{_digest(run_id)}"


def job_token(job_id: str) -> str:
    """A job's id as one token of a subject."""
    return _digest(job_id)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def subject(kind: str, *tokens: str) -> str:
    """``ale.v1.job.RUN.JOB``."""
    return ".".join((PREFIX, kind, *tokens))


def jobs_consumer(run: str) -> str:
    """The durable consumer from which workers take a run's jobs."""
    return f"jobs-{run}"


def episodes_consumer(run: str) -> str:
    """The durable consumer from which a run takes its episodes."""
    return f"episodes-{run}"


def streams() -> Sequence[StreamConfig]:
    """The streams for runs and workers."""
    common: dict[str, Any] = {"storage": StorageType.FILE, "max_msgs_per_subject": 1}
    return [
        StreamConfig(
            name=RUNS,
            description="runs that want jobs run",
            subjects=[subject("run", "*")],
            max_age=_RUNS_KEPT_S,
            **common,
        ),
        StreamConfig(
            name=JOBS,
            description="jobs until their episodes are stored",
            subjects=[subject("job", "*", "*")],
            retention=RetentionPolicy.WORK_QUEUE,
            # A job that is asked for again while it is queued or run stays as it is.
            discard=DiscardPolicy.NEW,
            discard_new_per_subject=True,
            max_msgs=QUEUE_LIMIT,
            max_age=_KEPT_S,
            **common,
        ),
        StreamConfig(
            name=EPISODES,
            description="episodes until their run has stored them",
            subjects=[subject("episode", "*", "*")],
            retention=RetentionPolicy.WORK_QUEUE,
            max_age=_KEPT_S,
            **common,
        ),
    ]


def event_stream() -> StreamConfig:
    """The stream for the events of runs."""
    return StreamConfig(
        name=EVENTS,
        description="events of runs",
        subjects=[subject("event", "*", "*")],
        storage=StorageType.FILE,
        max_age=_KEPT_S,
        max_bytes=_EVENT_BYTES,
    )
