"""The trainer that learns nothing, for dry runs."""

from pathlib import Path

from ale.errors import StoreError
from ale.protocols import LLM
from ale.types import Batch, PolicySnapshot, StepReport

CHECKPOINT = "none.txt"
_MARK = "a dry run: nothing was trained\n"


class NoTrainer:
    """Counts what it is given. The policy stays at version 0."""

    def attach(self, llm: LLM | None) -> None:
        """Does nothing: any model works, or none."""

    async def step(self, batch: Batch) -> StepReport:
        """A report that says that nothing was trained."""
        episodes = sum(len(group.group.rollouts) for group in batch.groups)
        metrics = {"dry_run": 1.0, "episodes": float(episodes)}
        return StepReport(step=batch.step, policy_version=0, metrics=metrics)

    def snapshot(self) -> PolicySnapshot:
        """Version 0: nothing is trained."""
        return PolicySnapshot(version=0)

    def save(self, directory: Path) -> None:
        """Write a file that says that there is nothing to restore."""
        (directory / CHECKPOINT).write_text(_MARK)

    def load(self, directory: Path) -> None:
        """Check the checkpoint; there is nothing to restore.

        Raises:
            StoreError: it is a checkpoint of another trainer.
        """
        try:
            found = (directory / CHECKPOINT).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"{directory} is no checkpoint of trainer none: {error}") from error
        if found != _MARK:
            raise StoreError(f"{directory} is no checkpoint of trainer none")
