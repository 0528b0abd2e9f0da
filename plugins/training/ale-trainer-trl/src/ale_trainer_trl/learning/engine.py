"""Shared by DPO and GRPO on data sets: arguments of TRL's trainers, training, and output."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import define, field
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from ale.errors import AleError
from ale_trainer_trl.learning import card, output
from ale_trainer_trl.learning.models import (
    check,
    load_model,
    refused_layers,
    use_absolute_base,
)
from ale_trainer_trl.learning.options import Training
from ale_trainer_trl.learning.progress import Listener, Progress, Stop, StoppedError, Trained
from ale_trainer_trl.learning.rows import Data
from ale_trainer_trl.learning.suppressed_output import silent_arguments, suppressed_output
from ale_training.devices import resolve_device
from ale_training.lora import lora_config


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
        **silent_arguments(
            resolve_device(training.device, path="device").type,
            checkpointing=training.gradient_checkpointing,
        ),
    }


@define(eq=False, slots=False)
class MetricsCallback(TrainerCallback):
    """Reports every update to a listener, and records the last value of each metric."""

    _listener: Listener | None = None
    """Called after every update."""
    _stop: Stop | None = None
    """Called after every update; True writes a checkpoint and ends the training."""
    _every: int = field(default=1, kw_only=True)
    """Number of updates between two from which a training can be resumed."""
    metrics: dict[str, float] = field(factory=dict, init=False)
    stopped: bool = field(default=False, init=False)
    """`stop` has ended the training."""
    shares_equal: set[float] = field(factory=set, init=False)
    """Shares of prompts whose completions had equal rewards, of each report of GRPO."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Report an update, unless its metrics follow: then they are reported together.

        Raises:
            AleError: the update has left a weight that is not finite; no checkpoint has it.
        """
        for name, weight in model.named_parameters():
            if weight.requires_grad and not torch.isfinite(weight).all():
                raise AleError(
                    f"update {state.global_step} has left {name} with values that are not finite; "
                    "a lower learning_rate may help"
                )
        last = state.global_step >= state.max_steps
        asked = self._stop is not None and self._stop() and state.global_step % self._every == 0
        if asked and not last:
            self.stopped = control.should_save = control.should_training_stop = True
        control.should_log = control.should_log or last or control.should_training_stop
        if not control.should_log:
            self._print_progress(state, {})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Take metrics of an update, of held-out rows, or of the whole training."""
        found = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, int | float)}
        self.metrics |= found
        if "frac_reward_zero_std" in found:
            self.shares_equal.add(found["frac_reward_zero_std"])
        if "learning_rate" in found:  # only logs of updates have it
            self._print_progress(state, found)

    def _print_progress(self, state: Any, metrics: Mapping[str, float]) -> None:
        if self._listener is not None:
            progress = Progress(
                step=int(state.global_step),
                steps=int(state.max_steps),
                epoch=float(state.epoch or 0.0),
                metrics=metrics,
            )
            self._listener(progress)


def use_callback(trainer: Any, metrics_callback: TrainerCallback) -> None:
    """Replace the callbacks that print."""
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.add_callback(metrics_callback)


def train(
    training: Training,
    load: Callable[[], tuple[Data, Callable[..., Any]]],
    progress: Listener | None,
    stop: Stop | None,
) -> Trained:
    """As `training.train`, with all packages installed.

    Args:
        load: reads and checks the data set, and gives what makes TRL's trainer of a model.
    """
    check(training)
    with suppressed_output(), output.claimed(training.output_dir):
        data, make = load()
        model = load_model(training)
        checkpoint, done = output.prepare(training, data.fingerprint)
        if done is not None:
            return done
        with refused_layers("lora.target"):
            trainer = make(
                model=model,
                train_dataset=data.train,
                eval_dataset=data.held_out,
                peft_config=lora_config(training.lora),
            )
        every = getattr(training, "iterations", 1)
        callback = MetricsCallback(progress, stop, every=every)
        return _run(trainer, training, data, checkpoint, callback)


def _run(
    trainer: Any,
    training: Training,
    data: Data,
    checkpoint: Path | None,
    metrics_callback: MetricsCallback,
) -> Trained:
    """Train to the end, from a checkpoint if there is one, evaluate on held-out rows, and write
    what was trained.

    Raises:
        StoppedError: `stop` returned True before the end.
        AleError: a weight is no longer finite, or TRL itself ended the training early.
    """
    use_callback(trainer, metrics_callback)
    use_absolute_base(trainer.model)
    # TRL's own card, which it writes with each checkpoint, names no model and no data.
    trainer.create_model_card = lambda *_, **__: None
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    done, steps = trainer.state.global_step, trainer.state.max_steps
    if done < steps and metrics_callback.stopped:
        raise StoppedError(done, steps)
    if done < steps:
        raise AleError(
            f"TRL ended the training by itself after update {done} of {steps}: the model is not "
            f"written; checkpoints are in {training.output_dir}"
        )
    if trainer.eval_dataset is not None:
        trainer.evaluate()
    trained = Trained(
        method=training.method,
        output_dir=training.output_dir,
        adapter=training.lora is not None,
        steps=int(trainer.state.global_step),
        rows=len(data.train),
        left_out=data.left_out,
        resumed_from=None if checkpoint is None else int(checkpoint.name.rpartition("-")[2]),
        metrics=dict(metrics_callback.metrics),
        equal_rewards=metrics_callback.shares_equal == {1.0},
    )
    _write(trainer, training, trained, data.fingerprint)
    return trained


def _write(trainer: Any, training: Training, trained: Trained, data: str) -> None:
    """Write adapter or model, tokenizer, model card and, last, the record."""
    folder, tokenizer = training.output_dir, trainer.processing_class
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if training.merge and training.lora is not None:
        merged = model.merge_and_unload()
        merged.save_pretrained(folder / "merged")
        tokenizer.save_pretrained(folder / "merged")
    card.write_card(training, trained, data)
    output.write_record(training, data, trained)
