"""Preference training from a data set. Imported late: see `training.train`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from trl import DPOConfig  # type: ignore[attr-defined]

from ale_trainer_trl.learning import output
from ale_trainer_trl.learning.engine import arguments
from ale_trainer_trl.learning.models import context_of, load_tokenizer
from ale_trainer_trl.learning.options import DpoTraining
from ale_trainer_trl.learning.pairs import load_pairs
from ale_trainer_trl.learning.preference import PairCollator, PairTrainer
from ale_trainer_trl.learning.rows import Data


def load(training: DpoTraining) -> tuple[Data, Callable[..., Any]]:
    """The pairs, and what makes a trainer of a model."""
    tokenizer = load_tokenizer(training.model_name_or_path)
    work = training.output_dir / output.WORK
    work.mkdir(exist_ok=True)
    context = context_of(training.model_name_or_path)
    pairs = load_pairs(training, tokenizer, work / "pairs.arrow", context=context)
    config = DPOConfig(
        **arguments(training),
        beta=training.beta,
        loss_type=[training.loss],
        label_smoothing=training.label_smoothing,
        max_length=None,
        eval_strategy="no",
        per_device_eval_batch_size=training.batch_size,
    )
    collator = PairCollator(tokenizer.pad_token_id)
    return pairs, partial(
        PairTrainer, args=config, data_collator=collator, processing_class=tokenizer
    )
