"""Jobs: planned episodes as plain data, and what a process needs to run them."""

from collections.abc import Mapping
from typing import Any

from attrs import field

from ale.types._record import record
from ale.types.episode import Episode, Split
from ale.types.task import Task


@record
class Job:
    """One planned episode, as plain data: any process that has the run's parts can run it."""

    schema: int = 1
    id: str
    """The id of the job's episode; the same in every run of the same config."""
    task: Task
    """Its folders (`Task.files`) are paths that must also exist on a worker."""
    split: Split = "train"
    step: int = 0
    start: str = ""
    """Name of its `Start`. An expert is possible only in the run's own process."""
    rollout: int = 0
    seed: int = 0
    temperature: float | None = None
    """Replaces the model's own temperature; None leaves it."""

    def episode(self, **fields: Any) -> Episode:
        """The episode of this job, with the fields that the job does not determine."""
        return Episode(
            id=self.id,
            task_id=self.task.id,
            split=self.split,
            step=self.step,
            start=self.start,
            rollout=self.rollout,
            seed=self.seed,
            temperature=self.temperature,
            **fields,
        )


@record
class RunSpec:
    """Everything that another process needs to run a run's jobs; see `ale.workers`."""

    schema: int = 1
    run_id: str
    created: float | None = None
    """As of `BuildContext`."""
    config: Mapping[str, Any] = field(factory=dict)
    """The sections ``sandbox``, ``llm``, ``agent``, ``run`` and ``plugins`` of the resolved config,
    without secrets."""
    versions: Mapping[str, str] = field(factory=dict)
    """The version of the core and of every plugin package, by distribution."""
    plugin_files: Mapping[str, str] = field(factory=dict)
    """SHA-256 of each file that ``plugins`` names, by absolute path."""
