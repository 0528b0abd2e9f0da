"""The trainer: a batch becomes samples, samples become updates, and the model a new version."""

import asyncio
import copy
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ale.errors import AleError, StoreError
from ale.protocols import LLM
from ale.types import Batch, PolicySnapshot, StepReport
from ale_trainer_policy import checkpoint
from ale_trainer_policy.bad_batches import BadBatches
from ale_trainer_policy.fleet import Fleet, learner_of
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.lessons import Lesson
from ale_trainer_policy.metrics import Tally
from ale_trainer_policy.models import fingerprint_of, policy_of, prepare
from ale_trainer_policy.old_policy import OldPolicy
from ale_trainer_policy.options import LearnOptions, ObjectiveParts
from ale_trainer_policy.randomness import Randomness
from ale_trainer_policy.ratios import RatioFiles
from ale_trainer_policy.sampler import with_temperature
from ale_trainer_policy.samples import Sample
from ale_trainer_policy.tree import split


class PolicyTrainer:
    """Trains the model that samples, in this process.

    Args:
        name: under which it is offered; a checkpoint of another one is refused.
        options: those that every trainer of this package has.
        lesson: what is learnt from a batch.
        parts: the objective.
        old_policy: where pi_old comes from.
        bad_batches: where batches go whose loss is not finite.
        ratios: where each step's importance ratios go; None keeps none.
        seed: of the order of minibatches.
    """

    def __init__(
        self,
        name: str,
        options: LearnOptions,
        *,
        lesson: Lesson,
        parts: ObjectiveParts,
        old_policy: OldPolicy,
        bad_batches: BadBatches,
        ratios: RatioFiles | None = None,
        seed: int,
    ) -> None:
        self._name = name
        self._options = options
        self._lesson = lesson
        self._parts = parts
        self._old_policy = old_policy
        self._bad_batches = bad_batches
        self._ratios = ratios
        self._seed = seed
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._lock = threading.Lock()
        self._model_lock: AbstractContextManager[Any] = nullcontext()
        self._learner: Learner | Fleet | None = None
        self._randomness: Randomness | None = None
        self._start: Learner | None = None
        self._fingerprint = ""
        self._version = 0
        self._snapshot: PolicySnapshot | None = None

    def attach(self, llm: LLM | None) -> None:
        """Take the model that samples.

        Raises:
            InputError: it gives no token ids, does not run in this process, or samples from
                another distribution than the one that is to be trained.
        """
        policy = policy_of(llm)
        reinforces = self._lesson.reinforces
        self._options = with_temperature(self._options, llm, reinforces=reinforces)
        # Attention is exchanged and weights change in place: nobody samples meanwhile.
        self._model_lock = policy.lock if self._options.sync == "same" else nullcontext()
        self._fingerprint = fingerprint_of(policy, self._options)
        self._version = int(policy.version)
        if self._options.kl_to_start == "metric":
            self._start = Learner(copy.deepcopy(policy.model), self._options)
        self._randomness = Randomness(self._seed, next(policy.model.parameters()).device)
        with self._randomness.drawn():
            model = prepare(policy, self._options)
            self._learner = learner_of(model, self._options)
        self._old_policy.published(self._version, self._learner)

    async def step(self, batch: Batch) -> StepReport:
        """Learn from one batch, in a thread.

        Returns:
            A report with the metrics that the README names. Where the loss was not finite in one
            of the step's updates the model is as it was before all of them, and ``steps_skipped``
            is 1.

        Raises:
            AleError: credits that don't fit the episodes (nothing has been learnt), or the third
                batch in a row whose loss was not finite.
        """
        return await asyncio.to_thread(self._step, batch)

    def _step(self, batch: Batch) -> StepReport:
        learner, randomness = self._attached()
        with self._lock, self._model_lock, randomness.drawn():
            began = time.perf_counter()
            tally = Tally()
            read = self._lesson.read(batch)
            tally.counts.update(read.counts)
            bad = self._learn(learner, read.samples, tally)
            if self._ratios is not None:
                self._ratios.write(batch, read.samples, tally.log_ratios)
            if tally.counts["updates"]:
                self._version += 1
                self._snapshot = None
                self._old_policy.published(self._version, learner)
            # Raises where it was one too many; what follows is the report of a step like another.
            tally.counts["steps_skipped"] = self._bad_batches.count(batch, bad=bad)
            metrics = tally.metrics()
            seconds = time.perf_counter() - began
            metrics["seconds"] = seconds
            metrics["tokens_per_second"] = tally.counts["tokens_in_rows"] / seconds
            return StepReport(step=batch.step, policy_version=self._version, metrics=metrics)

    def _learn(self, learner: Learner | Fleet, samples: Sequence[Sample], tally: Tally) -> bool:
        """Go through the samples; True where a loss or a gradient was not finite."""
        tally.counts["trajectories"] = len(samples)
        tally.counts["trajectories_without_signal"] = sum(not each.teaches for each in samples)
        ordered = sorted(samples, key=lambda each: each.episode)
        pace = self._lesson.pace(samples)
        epochs = pace.epochs or self._options.epochs
        updates = epochs * self._options.minibatches
        ordered = self._old_policy.scored(learner, ordered, self._split, n_updates=updates)
        self._measure_start(learner, ordered, tally)
        # One update is applied or not. Of several, the first ones may be what ruined the next.
        before = _kept(learner) if updates > 1 else None
        shares = self._shares(ordered, epochs)
        if all(self._update(learner, share, pace.lr, tally) for share in shares):
            return False
        if before is not None:
            learner.load_state(*before)
            tally.forget_updates()
        return True

    def _shares(self, samples: Sequence[Sample], epochs: int) -> Iterable[Sequence[Sample]]:
        """The samples of each update: equal shares of the batch, in a new order each epoch."""
        n = self._options.minibatches
        for _ in range(epochs):
            if n == 1:
                yield samples
                continue
            for share in np.array_split(self._generator.permutation(len(samples)), n):
                yield [samples[i] for i in sorted(share)]

    def _update(
        self,
        learner: Learner | Fleet,
        share: Sequence[Sample],
        lr: float | None,
        tally: Tally,
    ) -> bool:
        """One update; False where its loss or gradient was not finite, and nothing was changed."""
        taught = [each for each in self._lesson.normalised(share) if each.teaches]
        if not taught:
            return True
        for datum, measured in learner.forward_backward_each(self._split(taught), self._parts):
            if not measured.finite:
                learner.zero_grad()
                return False
            tally.add(datum, measured)
        rate = learner.rate(lr)
        norm = learner.optim_step(lr)
        if norm is None:
            return False
        tally.add_update(norm, rate)
        return True

    def _split(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        bound = self._options.max_tokens_per_microbatch
        return split(samples, bound, packing=self._options.packing)

    def _measure_start(
        self, learner: Learner | Fleet, samples: Sequence[Sample], tally: Tally
    ) -> None:
        if self._start is None:
            return
        pieces = self._split([each for each in samples if each.teaches])
        for micro, logp in zip(pieces, learner.logps(pieces), strict=True):
            sampled = np.concatenate([each.sampled for each in micro])
            tally.add_start(logp, self._start.logp(micro), sampled)

    def snapshot(self) -> PolicySnapshot:
        """The version as it stands; with ``sync: copy`` its weights, copied, by name."""
        learner, _ = self._attached()
        with self._lock:
            if self._snapshot is None:
                copied = self._options.sync == "copy"
                weights = learner.full_weights() if copied else None
                self._snapshot = PolicySnapshot(version=self._version, weights=weights)
            return self._snapshot

    def save(self, directory: Path) -> None:
        """Write weights, optimiser, random state and counters."""
        learner, randomness = self._attached()
        with self._lock:
            kept = self._old_policy.state()
            state = checkpoint.State(
                trainer=self._name,
                fingerprint=self._fingerprint,
                version=self._version,
                updates=learner.updates,
                bad_steps=self._bad_batches.in_a_row,
                generator=checkpoint.plain(self._generator.bit_generator.state),
                kept_versions=sorted({int(name.split("/")[1]) for name in kept}),
            )
            tensors = {**learner.state(), **randomness.state(), **kept}
            checkpoint.write(directory, state, tensors)

    def load(self, directory: Path) -> None:
        """Go on from what `save` wrote, to the bit.

        Raises:
            StoreError: it is not a checkpoint of this trainer, or it is one of another model.
        """
        learner, randomness = self._attached()
        with self._lock, self._model_lock:
            state, tensors = checkpoint.read(directory, self._name, self._fingerprint)
            try:
                learner.load_state(tensors, state.updates)
                randomness.load_state(tensors)
                self._generator.bit_generator.state = state.generator
                self._old_policy.load_state(tensors, state.kept_versions)
            except (KeyError, ValueError, TypeError) as error:
                raise StoreError(f"{directory} is not whole: {error}") from error
            self._bad_batches.in_a_row = state.bad_steps
            self._version = state.version
            self._snapshot = None

    def _attached(self) -> tuple[Learner | Fleet, Randomness]:
        if self._learner is None or self._randomness is None:
            raise AleError("the trainer has no model yet: attach one first")
        return self._learner, self._randomness


def _kept(learner: Learner | Fleet) -> tuple[dict[str, Tensor], int]:
    """Weights, moments and the number of updates, to go back to; in the host's memory."""
    state = learner.state()
    return {name: each.to("cpu", copy=True) for name, each in state.items()}, learner.updates
