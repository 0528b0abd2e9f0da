"""The trainer: one step of training is one step's rows."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ale.errors import InputError, StoreError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.types import Batch, PolicySnapshot, StepReport
from ale_trainer_export.options import ExportOptions
from ale_trainer_export.rows import Row, rows_of
from ale_trainer_export.store import RowFile

CHECKPOINT = "export.json"


class _Checkpoint(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    schema: int = 1
    last_step: int | None


class ExportTrainer:
    """Writes credited rows to a file. The policy stays at version 0.

    Args:
        path: the file, which may exist if it holds earlier rows of the same run.
        run_id: written into every row.
        min_abs_weight: rows whose largest |weight| is below it are left out.
    """

    def __init__(self, path: Path, *, run_id: str, min_abs_weight: float = 0.0) -> None:
        self._file = RowFile(path, run_id)
        self._run_id = run_id
        self._min_abs_weight = min_abs_weight
        self._last_step: int | None = None

    def attach(self, llm: LLM | None) -> None:
        """Does nothing: any model works, or none."""

    async def step(self, batch: Batch) -> StepReport:
        """Write the rows of one batch.

        A repeated step, in this process or after a crash, replaces its rows and those
        of all later steps.

        Returns:
            A report with the metrics of `metrics_of`.

        Raises:
            AleError: credits do not match the episodes. Nothing is written.
            StoreError: the file has other content. Nothing is written.
        """
        rows = [
            row
            for group in batch.groups
            for row in rows_of(group, run=self._run_id, step=batch.step)
        ]
        kept = [row for row in rows if row.max_abs_weight >= self._min_abs_weight]
        encode = msgspec.json.Encoder().encode
        await asyncio.to_thread(self._file.replace, batch.step, (encode(row) for row in kept))
        self._last_step = batch.step
        rewards = [
            rollout.episode.reward
            for group in batch.groups
            for rollout in group.group.rollouts
            if rollout.episode.reward is not None
        ]
        return StepReport(
            step=batch.step, policy_version=0, metrics=metrics_of(rows, len(kept), rewards)
        )

    def snapshot(self) -> PolicySnapshot:
        """Version 0: nothing is trained."""
        return PolicySnapshot(version=0)

    def save(self, directory: Path) -> None:
        """Write the number of the last step. The rows are in their own file."""
        (directory / CHECKPOINT).write_bytes(
            msgspec.json.encode(_Checkpoint(last_step=self._last_step))
        )

    def load(self, directory: Path) -> None:
        """Continue after the step that `save` wrote; the next step removes the rows of later steps.

        Raises:
            StoreError: it is not a checkpoint of an export.
        """
        path = directory / CHECKPOINT
        try:
            checkpoint = msgspec.json.decode(path.read_bytes(), type=_Checkpoint)
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(f"{directory} is no checkpoint of trainer export: {error}") from error
        if checkpoint.schema != 1:
            raise StoreError(f"{path}: schema {checkpoint.schema}, not 1")
        self._last_step = checkpoint.last_step


def export_trainer(options: ExportOptions, context: BuildContext) -> ExportTrainer:
    """The trainer ``export``.

    Raises:
        InputError: there is neither a path nor a run directory.
    """
    path = options.path
    if path is None:
        if context.run_directory is None:
            raise InputError.of("needed where there is no run directory", path="trainer.path")
        path = context.run_directory / "export" / "rows.jsonl"
    return ExportTrainer(path, run_id=context.run_id, min_abs_weight=options.min_abs_weight)


def metrics_of(rows: Sequence[Row], n_kept: int, rewards: Sequence[float]) -> Mapping[str, float]:
    """Metrics of a step.

    Args:
        rows: all rows of the batch, including those left out.
        n_kept: how many of them were written.
        rewards: one for each episode of the batch.

    Returns:
        ``rows`` and ``rows_left_out``; ``episodes``; ``mean_reward`` over the episodes;
        ``mean_abs_weight`` over the parts of chunks in all rows; ``zero_weight_fraction``: share of
        all rows whose weights are all 0. Means over nothing are left out.
    """
    weights = [abs(part.weight) for row in rows for part in row.chunks]
    metrics = {
        "rows": float(n_kept),
        "rows_left_out": float(len(rows) - n_kept),
        "episodes": float(len(rewards)),
    }
    if rewards:
        metrics["mean_reward"] = sum(rewards) / len(rewards)
    if rows:
        metrics["mean_abs_weight"] = sum(weights) / len(weights)
        zero = sum(row.max_abs_weight == 0 for row in rows)
        metrics["zero_weight_fraction"] = zero / len(rows)
    return metrics
