"""Trains a model update by update with TRL's trainers, for use inside a run.

TRL's trainers take one data set that is known from the start; in a run batches arrive one by one.
So each step builds a new TRL trainer around the same model and optimiser, in milliseconds.
"""

import copy
import itertools
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import datasets  # type: ignore[import-untyped]
import numpy as np
import torch
from attrs import frozen
from peft import get_peft_model
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from trl import DPOConfig, GRPOConfig  # type: ignore[attr-defined]

from ale_trainer_trl.learning.engine import MetricsCallback, use_callback
from ale_trainer_trl.learning.groups import GroupTrainer, Sampled, padded_groups
from ale_trainer_trl.learning.models import check_layers, refused_layers, use_absolute_base
from ale_trainer_trl.learning.pairs import as_row
from ale_trainer_trl.learning.preference import PairCollator, PairTrainer
from ale_trainer_trl.learning.suppressed_output import silent_arguments, suppressed_output
from ale_trainer_trl.learning.tokens import Pair
from ale_trainer_trl.options import DpoOptions, GrpoOptions
from ale_training.lora import full_weights, lora_config
from ale_training.tokens import check_tokens


@frozen(kw_only=True)
class Settings:
    """Settings of the learner."""

    options: DpoOptions | GrpoOptions
    epochs: int
    """Passes over the pairs, or updates per batch of groups."""
    seed: int
    extra: Mapping[str, Any]
    """Fields of DPOConfig or GRPOConfig."""


class Learner:
    """A model that is trained step by step.

    Args:
        model: a transformers model, owned by the learner and changed in place.
        tokenizer: the model's.
        settings: for optimiser, adapters and loss.

    Raises:
        InputError: the adapters' target layers do not exist.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: Settings) -> None:
        self._settings = settings
        # TRL changes the padding of the tokenizer that it is given.
        self._tokenizer = copy.deepcopy(tokenizer)
        check_layers(model, settings.options.lora, path="trainer.lora.target")
        config = lora_config(settings.options.lora)
        if config is None:
            self.model = model.requires_grad_(True)
        else:
            isolated = _isolated_random_state(settings.seed)
            with isolated, suppressed_output(), refused_layers("trainer.lora.target"):
                self.model = get_peft_model(model, config)
            use_absolute_base(self.model)
        self._trained = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            list(self._trained.values()), lr=settings.options.learning_rate, weight_decay=0.0
        )
        self.updates = 0
        """Optimiser updates so far."""

    @property
    def adapted(self) -> bool:
        """Are adapters trained, and not the model's own weights?"""
        return self._settings.options.lora is not None

    @property
    def _inner(self) -> Any:
        """The transformers model."""
        return self.model.get_base_model() if self.adapted else self.model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    def dpo_update(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """DPO on these pairs; the reference is the policy before these updates.

        Returns:
            TRL's metrics, averaged over the updates.

        Raises:
            AleError: the model can't read these tokens; see `check_tokens`.
        """
        settings = self._settings
        self._check(side.ids for pair in pairs for side in (pair.chosen, pair.rejected))
        rows = datasets.Dataset.from_list([as_row(pair) for pair in pairs])
        with self._trainer_folder() as shared:
            trainer = PairTrainer(
                model=self.model,
                # TRL itself keeps a copy of adapters, under the name that `_restore` removes.
                ref_model=None if self.adapted else copy.deepcopy(self.model),
                args=DPOConfig(
                    **shared,
                    **settings.extra,
                    num_train_epochs=settings.epochs,
                    per_device_train_batch_size=settings.options.batch_size,
                    max_length=None,
                ),
                data_collator=PairCollator(self._tokenizer.pad_token_id),
                train_dataset=rows,
                processing_class=self._tokenizer,
                optimizers=self._optimizers(),
            )
            return self._run_trainer(trainer)

    def _check(self, rows: Iterable[Sequence[int]]) -> None:
        rows = list(rows)
        ids = {*itertools.chain.from_iterable(rows)}
        longest = max(map(len, rows))
        check_tokens(self._inner, lowest=min(ids), highest=max(ids), longest=longest)

    def grpo_update(self, groups: Sequence[Sequence[Sampled]]) -> dict[str, float]:
        """GRPO on the rollouts of some prompts: one update, or `epochs` updates on the same ones.

        Returns:
            TRL's metrics, averaged over the updates.

        Raises:
            AleError: the model can't read these tokens; see `check_tokens`.
        """
        settings = self._settings
        self._check([*each.prompt_ids, *each.ids] for group in groups for each in group)
        even = padded_groups(groups)
        n_rows = len(even) * len(even[0])
        size = max(n for n in range(1, settings.options.batch_size + 1) if n_rows % n == 0)
        with self._trainer_folder() as shared:
            trainer = GroupTrainer(
                even,
                model=self.model,
                args=GRPOConfig(
                    **shared,
                    **settings.extra,
                    beta=0.0,
                    max_steps=settings.epochs,
                    num_iterations=settings.epochs,
                    num_generations=len(even[0]),
                    per_device_train_batch_size=size,
                    gradient_accumulation_steps=n_rows // size,
                    shuffle_dataset=False,
                ),
                train_dataset=datasets.Dataset.from_list(
                    [{"prompt": str(i)} for i in range(len(even))]
                ),
                processing_class=self._tokenizer,
                optimizers=self._optimizers(),
            )
            return self._run_trainer(trainer)

    @contextmanager
    def _trainer_folder(self) -> Iterator[dict[str, Any]]:
        """Fields that both configurations share; nothing is written into the folder."""
        settings = self._settings
        seed = (settings.seed + self.updates) % (1 << 32)  # transformers seeds numpy, too
        with (
            tempfile.TemporaryDirectory() as folder,
            _isolated_random_state(seed),
            suppressed_output(),
        ):
            yield {
                "output_dir": folder,
                "learning_rate": settings.options.learning_rate,
                "max_grad_norm": settings.options.max_grad_norm,
                "save_strategy": "no",
                "logging_steps": 1,
                "seed": seed,
                **silent_arguments(self.device.type),
            }

    def _optimizers(self) -> tuple[Any, Any]:
        return self._optimizer, LambdaLR(self._optimizer, lambda _: 1.0)

    def _run_trainer(self, trainer: Any) -> dict[str, float]:
        metrics_callback = MetricsCallback()
        use_callback(trainer, metrics_callback)
        try:
            trainer.train()
        finally:
            self._restore()
        self.updates += int(trainer.state.global_step)
        return _means(trainer.state.log_history)

    def _restore(self) -> None:
        """Undo TRL's changes to the model: its patched forward and its reference adapter."""
        self._inner.__dict__.pop("forward", None)
        if self.adapted and "ref" in self.model.peft_config:
            self.model.delete_adapter("ref")
        self.model.eval()
        self._optimizer.zero_grad(set_to_none=True)

    def full_weights(self) -> dict[str, Tensor]:
        """All weights under the names of the plain model, adapters merged into them."""
        return full_weights(self._inner)

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint: trained parameters, and the optimiser's moments."""
        found = {f"weight/{name}": p.detach().clone() for name, p in self._trained.items()}
        for name, parameter in self._trained.items():
            for key, value in self._optimizer.state.get(parameter, {}).items():
                found[f"{key}/{name}"] = torch.as_tensor(value).clone()
        return found

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Restore what `state` returned.

        Raises:
            KeyError, ValueError: the tensors are another model's, or incomplete.
        """
        with torch.no_grad():
            for name, parameter in self._trained.items():
                given = tensors[f"weight/{name}"]
                if given.shape != parameter.shape:
                    raise ValueError(f"{name} has the shape {tuple(given.shape)}")
                parameter.copy_(given)
        self._optimizer.state.clear()
        for name, parameter in self._trained.items():
            keys = ("step", "exp_avg", "exp_avg_sq")
            if f"step/{name}" in tensors:
                self._optimizer.state[parameter] = {
                    key: tensors[f"{key}/{name}"].clone()
                    if key == "step"
                    else tensors[f"{key}/{name}"].to(parameter.device, copy=True)
                    for key in keys
                }
        self.updates = updates


def _means(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the updates; the last entry is for the whole training, without learning rate."""
    logs = [entry for entry in history if "learning_rate" in entry]
    names = {name for entry in logs for name in entry} - {"step", "epoch", "step_time"}
    found = {}
    for name in sorted(names):
        values = [entry[name] for entry in logs if isinstance(entry.get(name), int | float)]
        if values and all(np.isfinite(values)):
            found[name] = float(np.mean(values))
    return found


@contextmanager
def _isolated_random_state(seed: int) -> Iterator[None]:
    """Restore every random generator afterwards: TRL seeds all of them."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count()))
    try:
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
