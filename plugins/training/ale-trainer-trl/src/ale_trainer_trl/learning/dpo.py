"""Preference training from a data set. Imported late: see `training.train_dpo`."""

import shutil

from trl import DPOConfig  # type: ignore[attr-defined]

from ale_trainer_trl.learning import engine, output
from ale_trainer_trl.learning.models import (
    check,
    context_of,
    load_model,
    load_tokenizer,
    refused_layers,
)
from ale_trainer_trl.learning.options import DpoTraining
from ale_trainer_trl.learning.pairs import load_pairs
from ale_trainer_trl.learning.preference import PairCollator, PairTrainer
from ale_trainer_trl.learning.progress import Listener, Stop, Trained
from ale_trainer_trl.learning.suppressed_output import suppressed_output
from ale_training.lora import lora_config


def train(training: DpoTraining, progress: Listener | None, stop: Stop | None) -> Trained:
    """As `training.train_dpo`, with all packages installed."""
    check(training)
    with suppressed_output(), output.claimed(training.output_dir):
        return _train(training, progress, stop)


def _train(training: DpoTraining, progress: Listener | None, stop: Stop | None) -> Trained:
    tokenizer = load_tokenizer(training.model_name_or_path)
    work = training.output_dir / output.WORK
    work.mkdir(exist_ok=True)
    try:
        context = context_of(training.model_name_or_path)
        pairs = load_pairs(training, tokenizer, work / "pairs.arrow", context=context)
        model = load_model(training)
        checkpoint, done = output.prepare(training, "dpo", pairs.fingerprint)
        if done is not None:
            return done
        with refused_layers("lora.target"):
            trainer = PairTrainer(
                model=model,
                args=DPOConfig(
                    **engine.arguments(training),
                    beta=training.beta,
                    loss_type=[training.loss],
                    label_smoothing=training.label_smoothing,
                    max_length=None,
                    eval_strategy="no",
                    per_device_eval_batch_size=training.batch_size,
                ),
                data_collator=PairCollator(tokenizer.pad_token_id),
                train_dataset=pairs.train,
                eval_dataset=pairs.held_out,
                processing_class=tokenizer,
                peft_config=lora_config(training.lora),
            )
        return engine.run(
            trainer,
            training,
            method="dpo",
            data=pairs.fingerprint,
            checkpoint=checkpoint,
            progress=progress,
            stop=stop,
            rows=len(pairs.train),
            left_out=pairs.left_out,
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)
