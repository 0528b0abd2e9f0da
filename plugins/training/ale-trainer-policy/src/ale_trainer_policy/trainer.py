"""The trainer. A step: batch -> weighted samples -> updates -> a new version of the policy."""

import asyncio
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import define, evolve, field

from ale.errors import AleError, InputError, PluginError, StoreError
from ale.plugin import BuildContext
from ale.protocols import LLM, CreditScheme, Objective, ObjectiveFacts, PolicyModel
from ale.types import Batch, PolicySnapshot, StepReport
from ale_trainer_policy.acting import Setting, explain, objective_name
from ale_trainer_policy.bad_batches import BadBatches
from ale_trainer_policy.checkpoint import State
from ale_trainer_policy.critic import make_critic
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.engines import check_engine
from ale_trainer_policy.example_groups import teaches_nothing
from ale_trainer_policy.freed import give_back
from ale_trainer_policy.hints import Hints
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.limits import LESS_MEMORY
from ale_trainer_policy.metrics import NAMES, MetricsAccumulator
from ale_trainer_policy.models import (
    check_quantised,
    fingerprint_of,
    prepare,
    reference_model,
)
from ale_trainer_policy.old_policy import PREFIX as VERSION
from ale_trainer_policy.old_policy import OldPolicy
from ale_trainer_policy.options import KlOptions, LearnOptions, ObjectiveParts, PolicyOptions
from ale_trainer_policy.random_state import RandomState
from ale_trainer_policy.ratios import write_ratios
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.scorer import Scorer, Teacher
from ale_trainer_policy.stored import SHARDS, nothing
from ale_trainer_policy.targets import TrainingTarget
from ale_trainer_policy.tree import by_sample, split, with_column
from ale_trainer_policy.valuing import with_values, write_values
from ale_trainer_policy.worker_group import WorkerGroup, make_learner
from ale_training import checkpoint
from ale_training.lora import check_without_adapters
from ale_training.memory import naming_lack_of_memory
from ale_training.policy import attach, other_engine, sampled_temperature, trainable
from ale_training.quantised import is_quantised


@define(eq=False, slots=False)
class PolicyTrainer:
    """Trains the model that samples, in this process."""

    _name: str
    """The component's; a checkpoint of another component is refused."""
    _options: LearnOptions
    _context: BuildContext
    _target: TrainingTarget = field(kw_only=True)
    """Turns batches into weighted samples."""
    _objective: Objective = field(kw_only=True)
    _old_policy: OldPolicy = field(kw_only=True)
    _critic: CriticOptions | None = field(default=None, kw_only=True)
    """Values the episodes' units; None leaves the credit as it is."""
    _keeps_ratios: bool = field(default=False, kw_only=True)
    _hints: Hints | None = field(default=None, kw_only=True)
    """Texts that the KL term's reference model reads and the policy does not."""

    def __attrs_post_init__(self) -> None:
        run = self._context.run_directory
        self._bad_batches = BadBatches(run and run / "bad_batches")
        self._generator = np.random.Generator(np.random.PCG64(self._context.seed))
        self._lock = threading.Lock()
        self._model_lock: AbstractContextManager[Any] = nullcontext()
        self._learner: Learner | WorkerGroup | None = None
        self._random_state: RandomState | None = None
        self._start: Scorer | None = None
        self._reference: Teacher | None = None
        self._fingerprint = ""
        self._version = 0
        self._fresh_moments_next = False
        self._same_numerics = False
        self._snapshot: PolicySnapshot | None = None

    @property
    def has_critic(self) -> bool:
        """Does this trainer complete credit with the values of a critic?"""
        return self._critic is not None

    @property
    def metric_names(self) -> Sequence[str]:
        """All that a step may have."""
        return NAMES

    def attach(self, llm: LLM | None) -> None:
        """Take the model that samples.

        Raises:
            InputError: the model is no `TrainablePolicy`, gives no token ids, does not take the
                weights of ``sync``, samples from a different distribution than the one to be
                trained or in another engine without a correction, has quantised weights that the
                options would train, or has adapters.
        """
        sampler = trainable(llm)
        policy = sampler.policy
        check_without_adapters(policy.model, path="llm.model")
        if self._options.processes > 1:
            _check_sendable(self._objective)
        if is_quantised(policy.model):
            check_quantised(self._options)
        attach(sampler, "in-place" if self._options.sync == "same" else "tensors")
        if isinstance(self._options, PolicyOptions):
            check_engine(sampler, self._options)
        self._same_numerics = (
            other_engine(sampler) is None
            and not is_quantised(policy.model)
            and _in_fp32(self._options, policy.model)
        )
        given, uses_ratio = self._options.temperature, self._target.uses_ratio
        temperature = sampled_temperature(given, sampler, uses_ratio=uses_ratio)
        self._options = evolve(self._options, temperature=temperature)
        # Attention is exchanged and weights change in place, so nothing may sample meanwhile.
        self._model_lock = policy.lock if self._options.sync == "same" else nullcontext()
        self._fingerprint = fingerprint_of(policy, self._options)
        self._version = sampler.policy_version
        device = torch.device(sampler.training_device)

        self._attach_references(policy, device)
        self._random_state = RandomState(self._context.seed, device)
        with (
            self._random_state.active(),
            naming_lack_of_memory("the model that is trained", LESS_MEMORY),
        ):
            critic = make_critic(policy, self._options, self._critic)
            model = prepare(policy, self._options)
            if self._context.checking and self._options.is_sharded:
                return
            self._learner = make_learner(model, self._options, critic, device)
        self._old_policy.store_version(self._version, self._learner)

    def _attach_references(self, policy: PolicyModel, device: torch.device) -> None:
        """Make the models that the policy is compared with. Raises `InputError` as `attach`."""

        def scorer(folder: Path | None) -> Scorer:
            model = reference_model(policy, folder, self._options)
            return Scorer(model.to(device), self._options)

        if self._options.kl_to_start == "metric":
            self._start = scorer(None)
        if not self._objective.needs_reference:
            return
        kl = self._objective.kl if isinstance(self._objective, ObjectiveParts) else None
        folder = self._objective.reference_model
        if kl is not None and kl.to == "server":
            self._reference = self._served(kl)
        else:
            same = self._start if folder is None else None
            self._reference = same or scorer(folder)
        if self._hints is not None:
            self._hints.attach(policy.tokenizer, self._reference.context)

    def _served(self, kl: KlOptions) -> Teacher:
        """The teacher on a server. Raises `InputError` if it can't be one."""
        from ale_trainer_policy.served_teacher import ServedTeacher  # late: few runs have one

        if self._options.temperature != 1.0:
            message = "a server scores at temperature 1"
            hint = f"llm.temperature: 1.0, which is {self._options.temperature:g}"
            raise InputError.of(message, path="trainer.objective.kl.to", hint=hint)
        key = None
        if kl.api_key_env is not None:
            secret = self._context.secret(kl.api_key_env)
            if secret is None:
                message = f"the environment variable {kl.api_key_env} is not set"
                raise InputError.of(message, path="trainer.objective.kl.api_key_env")
            key = secret.value
        assert kl.server is not None
        return ServedTeacher(kl.server, key)

    def explain_objective(self, credit: CreditScheme, rollouts: int) -> ObjectiveFacts | None:
        """Facts about the objective with these options; None if the credit is not used."""
        options = self._options
        if not isinstance(options, PolicyOptions):
            return None
        setting = Setting(
            old_policy=options.old_policy or "recompute",
            several_updates=options.epochs * options.minibatches > 1,
            stale=self._context.staleness > 0,
            same_numerics=self._same_numerics,
        )
        name = objective_name(options.objective)
        kl = getattr(options.objective, "kl", None)
        if kl is not None and kl.estimator == "k1" and teaches_nothing(credit, rollouts):
            raise InputError.of(
                "estimator k1 has no gradient but noise, and the credit scheme gives no weight: "
                "nothing would be learned",
                path="trainer.objective.kl.estimator",
                expected="k2, whose gradient is that of the divergence; or k3",
            )
        return explain(self._objective, name, setting, credit, rollouts)

    async def step(self, batch: Batch) -> StepReport:
        """Train on one batch, in a thread.

        Returns:
            A report with the metrics listed in the README. If the loss of one of the step's
            updates is not finite, all of them are rolled back and ``steps_skipped`` is 1.

        Raises:
            AleError: credits do not match the episodes (nothing was trained), this is the third
                batch in a row with a non-finite loss, or there is too little memory.
        """
        return await asyncio.to_thread(self._step, batch)

    def _step(self, batch: Batch) -> StepReport:
        try:
            with naming_lack_of_memory("the training step", LESS_MEMORY):
                return self._trained(batch)
        finally:
            give_back()

    def _trained(self, batch: Batch) -> StepReport:
        learner, random_state = self._attached()
        with self._lock, self._model_lock, random_state.active():
            began = time.perf_counter()
            self._snapshot = None  # frees its copy of the weights
            accumulator = MetricsAccumulator()
            read = self._target.read(batch)
            accumulator.counts.update(read.counts)
            accumulator.add_lengths(batch)
            samples = self._with_values(learner, batch.step, read.samples, accumulator)
            if self._hints is not None:
                samples = self._hints.given(batch, samples, accumulator.counts)
            bad = self._learn(learner, samples, accumulator)
            run = self._context.run_directory
            if self._keeps_ratios and run is not None:
                found = (accumulator.log_ratios, accumulator.entropies)
                write_ratios(run / "ratios", batch, read.samples, *found)
            if accumulator.counts["updates"]:
                self._version += 1
                self._old_policy.store_version(self._version, learner)
            # Raises on the third bad step in a row.
            accumulator.counts["steps_skipped"] = self._bad_batches.count(batch, bad=bad)
            metrics = accumulator.metrics()
            seconds = time.perf_counter() - began
            metrics["seconds"] = seconds
            metrics["tokens_per_second"] = accumulator.counts["tokens_in_rows"] / seconds
            return StepReport(step=batch.step, policy_version=self._version, metrics=metrics)

    def _learn(
        self,
        learner: Learner | WorkerGroup,
        samples: Sequence[Sample],
        accumulator: MetricsAccumulator,
    ) -> bool:
        """Apply the step's updates; True if one was not finite, and all were rolled back."""
        accumulator.counts["trajectories"] = len(samples)
        accumulator.counts["trajectories_without_signal"] = sum(
            not each.has_signal for each in samples
        )
        ordered = sorted(samples, key=lambda each: each.episode)
        schedule = self._target.schedule(samples)
        if self._fresh_moments_next and not schedule.fresh_moments_next:
            learner.reset_moments()
        self._fresh_moments_next = schedule.fresh_moments_next
        epochs = schedule.epochs or self._options.epochs
        updates = epochs * self._options.minibatches
        ordered = self._old_policy.with_old_policy(learner, ordered, self._split, n_updates=updates)
        ordered = self._with_reference(ordered)
        self._measure_start(learner, ordered, accumulator)
        # A single bad update changes nothing; with several, the earlier ones have to be undone.
        if updates > 1:
            learner.remember()
        shares = self._shares(ordered, epochs)
        good = all(self._update(learner, share, schedule.lr, accumulator) for share in shares)
        if updates > 1 and not good:
            learner.undo()
            accumulator.reset_updates()
        if updates > 1:
            learner.forget()
        return not good

    def _shares(self, samples: Sequence[Sample], epochs: int) -> Iterable[Sequence[Sample]]:
        """The samples of each update: equal shares of the batch, shuffled anew in each epoch.

        Where there are fewer samples than minibatches, each is a share.
        """
        n = self._options.minibatches
        for _ in range(epochs):
            if n == 1:
                yield samples
                continue
            order = self._generator.permutation(len(samples))
            for share in np.array_split(order, min(n, max(len(samples), 1))):
                yield [samples[i] for i in sorted(share)]

    def _update(
        self,
        learner: Learner | WorkerGroup,
        share: Sequence[Sample],
        lr: float | None,
        accumulator: MetricsAccumulator,
    ) -> bool:
        """One update; False if its loss or gradient was not finite: then nothing was changed."""
        trainable = [each for each in self._target.normalised(share) if each.trainable]
        if not trainable:
            return True
        for datum, measured in learner.forward_backward_each(
            self._split(trainable), self._objective
        ):
            if not measured.finite:
                learner.zero_grad()
                return False
            accumulator.add(datum, measured)
        rate = learner.rate(lr)
        norms = learner.optim_step(
            lr,
            any(each.moves_policy for each in trainable),
            any(each.value is not None for each in trainable),
        )
        if norms is None:
            return False
        if norms:
            accumulator.add_update(norms, rate)
        else:
            weighted = any(each.has_signal for each in trainable)
            accumulator.counts["updates_without_gradient"] += weighted
        return True

    def _split(self, samples: Sequence[Sample]) -> list[list[Sample]]:
        options = self._options
        bound, ranks = options.max_tokens_per_microbatch, options.processes
        return split(samples, bound, packing=options.packing, ranks=ranks)

    def _with_values(
        self,
        learner: Learner | WorkerGroup,
        step: int,
        samples: Sequence[Sample],
        accumulator: MetricsAccumulator,
    ) -> Sequence[Sample]:
        """The samples with credit completed by the critic as it is before the step."""
        if self._critic is None:
            return samples
        # Split in a fixed order, regardless of the order in which the episodes ended.
        ordered = sorted(samples, key=lambda each: each.episode)
        completed, found = with_values(learner, ordered, self._split, self._critic)
        accumulator.add_values(list(found.values()))
        if self._context.run_directory is not None:
            write_values(self._context.run_directory / "values", step, found)
        return completed

    def _with_reference(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples with their log pi_ref, if the objective has a KL term, in the same order."""
        if self._reference is None:
            return list(samples)
        if self._hints is None:
            pieces = self._split([each for each in samples if each.trainable])
            return with_column(samples, "reference_logp", pieces, self._reference.logps(pieces))
        found = self._of_teacher(self._reference, self._hints, samples)
        # Without a hint a sample has no KL term, and its column is not used.
        return [
            evolve(each, reference_logp=found.get(each.episode, np.zeros(len(each.at))))
            for each in samples
        ]

    def _of_teacher(
        self, teacher: Teacher, hints: Hints, samples: Sequence[Sample]
    ) -> dict[str, Floats]:
        """log pi_ref of the samples that have hints, which the teacher reads, by episode."""
        pieces = self._split([hints.shown(each) for each in samples if each.hint is not None])
        return {
            sample.episode: own
            for piece, values in zip(pieces, teacher.logps(pieces), strict=True)
            for sample, own in zip(piece, by_sample(piece, values), strict=True)
        }

    def _measure_start(
        self,
        learner: Learner | WorkerGroup,
        samples: Sequence[Sample],
        accumulator: MetricsAccumulator,
    ) -> None:
        if self._start is None:
            return
        pieces = self._split([each for each in samples if each.trainable])
        for micro, logp in zip(pieces, learner.logps(pieces), strict=True):
            sampled = np.concatenate([each.sampled for each in micro])
            accumulator.add_start(logp, self._start.logp(micro), sampled)

    def snapshot(self) -> PolicySnapshot:
        """The current version; with ``sync: copy`` also a copy of its weights by name."""
        learner, _ = self._attached()
        with self._lock:
            if self._snapshot is None:
                copied = self._options.sync == "copy"
                weights = learner.full_weights() if copied else None
                self._snapshot = PolicySnapshot(version=self._version, weights=weights)
            return self._snapshot

    def save(self, directory: Path) -> None:
        """Write weights, optimiser, random state and counters."""
        self._write(directory, background=False)

    def start_saving(self, directory: Path) -> Callable[[], None] | None:
        """Write what `save` writes; with ``saving: background``, only begin to write it.

        Returns:
            A function that waits, in any thread, until it is written; None if it already is.

        Raises:
            StoreError: it can't be written; the returned function raises this too.
        """
        return self._write(directory, background=self._options.saving == "background")

    def _write(self, directory: Path, *, background: bool) -> Callable[[], None] | None:
        learner, random_state = self._attached()
        with self._lock:
            state = State(
                trainer=self._name,
                fingerprint=self._fingerprint,
                version=self._version,
                updates=learner.updates,
                bad_steps=self._bad_batches.in_a_row,
                generator=dict(self._generator.bit_generator.state),
                kept_versions=list(self._old_policy.weights_of),
                fresh_moments_next=self._fresh_moments_next,
            )
            tensors = {**random_state.state(), **self._old_policy.state()}
            shards_written = nothing
            if isinstance(learner, Learner):
                tensors |= learner.state()
            else:
                shards_written = learner.start_saving(directory / SHARDS, background=background)
            if not background:
                state.shards = shards_written()
                checkpoint.write(directory, state, tensors)
                return None
            copied = {name: each.to("cpu", copy=True) for name, each in tensors.items()}

        def finish() -> None:
            state.shards = shards_written()
            # Counters last: without them, the folder is not a checkpoint.
            checkpoint.write(directory, state, copied)

        return finish

    def load(self, directory: Path) -> None:
        """Restore what `save` wrote; training continues bit for bit.

        Raises:
            StoreError: it is damaged, not a checkpoint of this trainer, or of another model.
        """
        learner, random_state = self._attached()
        with self._lock, self._model_lock:
            state, tensors = checkpoint.read(
                directory,
                State,
                trainer=self._name,
                fingerprint=self._fingerprint,
                prefixes=("random/", f"{VERSION}/"),
            )
            try:
                learner.load(directory, state.updates, state.shards)
                random_state.load_state(tensors)
                self._generator.bit_generator.state = state.generator
                self._old_policy.load_state(tensors, state.kept_versions)
            except (KeyError, ValueError, TypeError, OverflowError) as error:
                raise StoreError(f"{directory} is incomplete: {error}") from error
            self._bad_batches.in_a_row = state.bad_steps
            self._fresh_moments_next = state.fresh_moments_next
            self._version = state.version
            self._snapshot = None

    def _attached(self) -> tuple[Learner | WorkerGroup, RandomState]:
        if self._learner is None or self._random_state is None:
            raise AleError("the trainer has no model: call attach first")
        return self._learner, self._random_state


def _in_fp32(options: LearnOptions, model: Any) -> bool:
    """Does the trainer compute as the sampler does, in float32 and without dropout?"""
    exact = all(each.dtype == torch.float32 for each in model.parameters())
    dropout = options.lora is not None and options.lora.dropout > 0
    return options.precision == "fp32" and exact and not dropout


def _check_sendable(objective: Objective) -> None:
    """Check that the other processes that train can have the objective.

    Raises:
        InputError: it can't be pickled.
    """
    try:
        pickle.dumps(objective)
    except (PluginError, pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError.of(
            f"the objective can't be sent to the other processes that train: {error}",
            path="trainer.objective",
            hint="trainer.processes: 1 needs none",
        ) from error
