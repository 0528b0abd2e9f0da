"""What runs and workers tell each other beside jobs and episodes, as JSON."""

import msgspec
from attrs import field

from ale.types import RunSpec, record


@record
class Announcement:
    """A run that wants jobs run: the message on ``ale.v1.run.RUN``."""

    schema: int = 1
    spec: RunSpec
    labels: tuple[str, ...] = ()
    """A worker needs all of them."""
    lost_after_s: float
    """Seconds without a sign of life after which a work is given to another worker."""
    deliveries: int
    """Times that a job is given to workers which are lost over it."""


@record
class Progress:
    """A job enters a stage: ``ale.v1.stage.RUN.JOB``."""

    schema: int = 1
    stage: str
    """``queued`` where a worker has taken the job."""
    worker: str
    delivery: int = 1
    """How many times the job has been taken."""


@record
class Refusal:
    """A worker with the right labels can't run a run's jobs: ``ale.v1.refused.RUN``."""

    schema: int = 1
    worker: str
    reasons: tuple[str, ...] = field(default=())


def encoded(message: object) -> bytes:
    """A message as JSON."""
    return msgspec.json.encode(message, enc_hook=str)
