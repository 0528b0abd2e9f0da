"""What both trainings share: arguments of TRL's trainers, the run of one, and what it leaves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from ale_trainer_trl.learning import card, output
from ale_trainer_trl.learning.hushed import quiet
from ale_trainer_trl.learning.models import device_of
from ale_trainer_trl.learning.options import Training
from ale_trainer_trl.learning.progress import Listener, Progress, Stop, StoppedError, Trained


def arguments(training: Training) -> dict[str, Any]:
    """Fields of TrainingArguments. Nothing is reported or sent anywhere."""
    return {
        "output_dir": str(training.output_dir),
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.schedule,
        "warmup_steps": training.warmup_steps,
        "max_grad_norm": training.max_grad_norm,
        "num_train_epochs": training.epochs,
        "max_steps": training.max_steps or -1,
        "per_device_train_batch_size": training.batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation,
        "save_strategy": "steps",
        "save_steps": training.save_steps,
        "save_total_limit": training.keep_checkpoints,
        "logging_steps": training.log_steps,
        "logging_first_step": True,
        "seed": training.seed,
        "data_seed": training.seed,
        **quiet(device_of(training.device).type, checkpointing=training.gradient_checkpointing),
    }


class Telling(TrainerCallback):
    """Tells a listener of every update, and keeps the last of each metric.

    Args:
        listener: told of every update.
        stop: asked after every update; where it says so, a checkpoint is written and it ends.
        every: updates between two that a training can go on from.
    """

    def __init__(
        self, listener: Listener | None = None, stop: Stop | None = None, *, every: int = 1
    ) -> None:
        self._listener = listener
        self._stop = stop
        self._every = every
        self.metrics: dict[str, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An update whose metrics are about to come is told with them."""
        last = state.global_step >= state.max_steps
        if self._asked_to_stop(state) and not last:
            control.should_save = control.should_training_stop = True
        control.should_log = control.should_log or last or control.should_training_stop
        if not control.should_log:
            self._tell(state, {})

    def _asked_to_stop(self, state: Any) -> bool:
        return self._stop is not None and self._stop() and state.global_step % self._every == 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Metrics: of updates, of held-out rows, or of the whole training."""
        found = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)}
        self.metrics |= found
        if "learning_rate" in found:  # those of updates have it
            self._tell(state, found)

    def _tell(self, state: Any, metrics: Mapping[str, float]) -> None:
        if self._listener is not None:
            told = Progress(
                step=int(state.global_step),
                steps=int(state.max_steps),
                epoch=float(state.epoch or 0.0),
                metrics=metrics,
            )
            self._listener(told)


def listen(trainer: Any, telling: TrainerCallback) -> None:
    """Let one callback hear, in the place of those that print."""
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.add_callback(telling)


def run(
    trainer: Any,
    training: Training,
    *,
    method: str,
    checkpoint: Path | None,
    progress: Listener | None,
    stop: Stop | None,
    rows: int,
    left_out: Mapping[str, int],
) -> Trained:
    """Train to the end, from a checkpoint where there is one, and measure the held-out rows.

    Raises:
        StoppedError: `stop` said so before the end.
    """
    telling = Telling(progress, stop, every=getattr(training, "iterations", 1))
    listen(trainer, telling)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    if trainer.state.global_step < trainer.state.max_steps:
        raise StoppedError(trainer.state.global_step, trainer.state.max_steps)
    if trainer.eval_dataset is not None:
        trainer.evaluate()
    return Trained(
        method=method,
        output_dir=training.output_dir,
        adapter=training.lora is not None,
        steps=int(trainer.state.global_step),
        rows=rows,
        left_out=left_out,
        resumed_from=None if checkpoint is None else int(checkpoint.name.rpartition("-")[2]),
        metrics=dict(telling.metrics),
    )


def finish(trainer: Any, tokenizer: Any, training: Training, trained: Trained, data: str) -> None:
    """Write adapter or model, tokenizer, model card and, last, the record that says it is done."""
    folder = training.output_dir
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if training.merge and training.lora is not None:
        merged = model.merge_and_unload()
        merged.save_pretrained(folder / "merged")
        tokenizer.save_pretrained(folder / "merged")
    card.write_card(training, trained, data)
    output.write_record(training, trained.method, data, trained)
