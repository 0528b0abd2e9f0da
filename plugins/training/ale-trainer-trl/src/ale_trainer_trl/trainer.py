"""The trainer: TRL trains a copy of the model on each batch; the result is a new version."""

import asyncio
import copy
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

from attrs import define

from ale.errors import AleError, InputError, StoreError
from ale.protocols import LLM, TrainablePolicy
from ale.types import Batch, PolicySnapshot, StepReport
from ale_trainer_trl.learning.learner import Learner, Settings
from ale_training import checkpoint
from ale_training.lora import check_without_adapters
from ale_training.memory import naming_lack_of_memory
from ale_training.policy import attach, trainable
from ale_training.quantised import is_quantised

_LESS_MEMORY = (
    "It takes less with a smaller trainer.batch_size or trainer.max_length, and with lora."
)

Update = Callable[[Learner, Batch], Mapping[str, float]]
"""Train on a batch; returns its counts, and TRL's metrics if there was an update."""


@define(eq=False, slots=False)
class TrlTrainer:
    """Trains a copy of the model that samples, and hands over its weights after each step.

    A copy, because TRL changes the forward pass of what it trains.
    """

    _name: str
    """The name that it is registered under; a checkpoint of another trainer is refused."""
    _settings: Callable[[TrainablePolicy], Settings]
    """Gives the learner's settings for the model that samples; raises `InputError` where this
    model's samples can't be trained on."""
    _update: Update

    ignores_demonstrations: ClassVar[Literal[True]] = True
    """Forced tokens are masked: they are context, and have no advantage."""

    def __attrs_post_init__(self) -> None:
        self._lock = threading.Lock()
        self._learner: Learner | None = None
        self._fingerprint = ""
        self._version = 0
        self._snapshot: PolicySnapshot | None = None

    def attach(self, llm: LLM | None) -> None:
        """Copy the model that samples.

        Raises:
            InputError: the model is no `TrainablePolicy`, gives no token ids, samples in a way that
                this trainer can't score, or has quantised weights or adapters.
        """
        sampler = trainable(llm)
        policy = sampler.policy
        check_without_adapters(policy.model, path="llm.model")
        if is_quantised(policy.model):
            message = "the model's weights are quantised, and this trainer hands over whole ones"
            hint = "trainer: {type: policy, lora: {r: 16}}; or no llm.quantise"
            raise InputError.of(message, path="trainer.type", hint=hint)
        attach(sampler, "tensors")
        settings = self._settings(sampler)
        model = copy.deepcopy(policy.model)
        self._learner = Learner(model.to(sampler.training_device), policy.tokenizer, settings)
        self._fingerprint = f"{policy.fingerprint}/{settings.options.lora}"
        self._version = sampler.policy_version

    async def step(self, batch: Batch) -> StepReport:
        """Train on one batch, in a thread.

        Returns:
            A report with counts of what was left out and TRL's metrics. The version increases if
            there was an update.

        Raises:
            AleError: credits do not match the episodes, or there is too little memory; nothing was
                trained.
        """
        return await asyncio.to_thread(self._step, batch)

    def _step(self, batch: Batch) -> StepReport:
        learner = self._attached()
        with self._lock:
            began, before = time.perf_counter(), learner.updates
            with naming_lack_of_memory("the training step", _LESS_MEMORY):
                found = self._update(learner, batch)
            metrics = {name: float(value) for name, value in found.items()}
            updates = learner.updates - before
            if updates:
                self._version += 1
                self._snapshot = None
            metrics |= {"updates": float(updates), "seconds": time.perf_counter() - began}
            return StepReport(step=batch.step, policy_version=self._version, metrics=metrics)

    def snapshot(self) -> PolicySnapshot:
        """The current version with its weights by name, adapters merged."""
        learner = self._attached()
        with self._lock:
            if self._snapshot is None:
                self._snapshot = PolicySnapshot(
                    version=self._version, weights=learner.full_weights()
                )
            return self._snapshot

    def save(self, directory: Path) -> None:
        """Write weights, optimiser and counters; and the adapter in PEFT's format."""
        learner = self._attached()
        with self._lock:
            state = checkpoint.State(
                trainer=self._name,
                fingerprint=self._fingerprint,
                version=self._version,
                updates=learner.updates,
            )
            if learner.adapted:
                # Embeddings have no adapters; older versions of PEFT would ask the hub about them.
                learner.model.save_pretrained(directory / "adapter", save_embedding_layers=False)
            checkpoint.write(directory, state, learner.state())

    def load(self, directory: Path) -> None:
        """Restore what `save` wrote.

        Raises:
            StoreError: it is not a checkpoint of this trainer, or is of another model.
        """
        learner = self._attached()
        with self._lock:
            state, tensors = checkpoint.read(
                directory, checkpoint.State, trainer=self._name, fingerprint=self._fingerprint
            )
            try:
                learner.load_state(tensors, state.updates)
            except (KeyError, ValueError) as error:
                raise StoreError(f"{directory} is incomplete: {error}") from error
            self._version = state.version
            self._snapshot = None

    def _attached(self) -> Learner:
        if self._learner is None:
            raise AleError("the trainer has no model: call attach first")
        return self._learner
