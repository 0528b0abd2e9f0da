"""The trainer: each step is some updates of an adapter at the service, and a new snapshot there."""

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from attrs import define, field
from tinker import AdamParams, ForwardBackwardOutput, TrainingClient

from ale.errors import AleError, InputError, Problem, StoreError
from ale.files import write_whole
from ale.plugin import BuildContext
from ale.protocols import LLM, Objective
from ale.types import Batch, PolicySnapshot, StepReport
from ale_tinker.data import Row, rows_of
from ale_tinker.losses import Asked, chosen
from ale_tinker.model import TinkerLLM
from ale_tinker.options import TrainerOptions
from ale_tinker.service import answer_of, naming_errors
from ale_training.checkpoint import STATE, State, read_state
from ale_training.normalise import NORMALISERS

_LOG = logging.getLogger(__name__)


class _State(State):
    """Names at the service; both are None before the first update."""

    state: str | None
    """Weights and moments."""
    snapshot: str | None
    """The weights to sample from."""


@define(eq=False, slots=False)
class TinkerTrainer:
    """Trains an adapter over the model that samples."""

    _options: TrainerOptions
    _loss: Asked
    _seed: int
    _run: str = field(kw_only=True)
    """Id of the run: begins the names of snapshots."""

    ignores_demonstrations: ClassVar[Literal[True]] = True

    def __attrs_post_init__(self) -> None:
        self._llm: TinkerLLM | None = None
        self._client: TrainingClient | None = None
        self._snapshot = PolicySnapshot(version=0)
        self._updates = 0
        self._state: str | None = None
        """Name of the stored weights and moments of the current version."""

    def attach(self, llm: LLM | None) -> None:
        """Take the model's session. The service is not asked.

        Raises:
            InputError: it is another model, or one that is not sampled at temperature 1.
        """
        if not isinstance(llm, TinkerLLM):
            raise InputError.of(
                "this trainer trains at the service tinker, and the model does not sample there",
                path="trainer.type",
                expected="llm: {type: tinker}",
            )
        if problems := [*_unscorable(llm)]:
            raise InputError(problems)
        self._llm = llm

    async def step(self, batch: Batch) -> StepReport:
        """Train on one batch.

        Raises:
            AleError: credits do not match the episodes, or the service failed. In the second case
                the adapter may have been changed: continue from a checkpoint.
        """
        began = time.perf_counter()
        found = rows_of(batch, self._loss.normaliser)
        metrics = dict(found.counts)
        if found.rows:
            with naming_errors(f"step {batch.step} of training"):
                client = await asyncio.to_thread(self._connected)
                for _ in range(self._options.epochs):
                    metrics |= await self._update(client, found.rows)
                await self._hand_over(client)
        metrics["updates"] = float(self._options.epochs if found.rows else 0)
        metrics["seconds"] = time.perf_counter() - began
        return StepReport(step=batch.step, policy_version=self._snapshot.version, metrics=metrics)

    async def _update(self, client: TrainingClient, rows: Sequence[Row]) -> Mapping[str, float]:
        options = self._options
        # Both are submitted before either is waited for: the service runs them in one cycle.
        passes = self._loss.ask(client, rows)
        update = client.optim_step(
            AdamParams(learning_rate=options.lr, grad_clip_norm=options.max_grad_norm)
        )
        output = await self._answer(passes)
        await self._answer(update)
        self._updates += 1
        return _measured(output, rows)

    async def _hand_over(self, client: TrainingClient) -> None:
        version = self._snapshot.version + 1
        saved = await self._answer(client.save_weights_for_sampler(self._name(version)))
        self._snapshot = PolicySnapshot(version=version, path=saved.path)
        self._state = None

    async def _answer(self, future: Any) -> Any:
        async with asyncio.timeout(self._options.timeout_s):
            return await future

    def _name(self, version: int) -> str:
        return f"{self._run or 'run'}-{version}"

    def _connected(self) -> TrainingClient:
        llm = self._attached()
        if self._client is None:
            self._client = llm.service.trained(
                llm.policy.name,
                rank=self._options.rank,
                seed=self._seed,
                timeout_s=self._options.timeout_s,
            )
        return self._client

    def snapshot(self) -> PolicySnapshot:
        """The current version; its path is a name at the service, None before the first update."""
        return self._snapshot

    def save(self, directory: Path) -> None:
        """Store weights and moments at the service, and their names here."""
        version = self._snapshot.version
        if self._client is not None and self._state is None and version:
            with naming_errors("the state could not be saved", StoreError):
                saving = self._client.save_state(self._name(version))
                self._state = answer_of(saving, self._options.timeout_s).path
        state = _State(
            trainer="tinker",
            fingerprint=self._fingerprint(),
            version=version,
            updates=self._updates,
            state=self._state,
            snapshot=self._snapshot.path,
        )
        write_whole(directory / STATE, msgspec.json.encode(state), sync=True)

    def load(self, directory: Path) -> None:
        """Continue from what `save` wrote, with a new adapter at the service.

        Raises:
            StoreError: it is not a checkpoint of this trainer and model, or the service does not
                have its state any more.
        """
        stored = read_state(directory, _State, trainer="tinker")
        if stored.fingerprint != self._fingerprint():
            raise StoreError(
                f"{directory} is a checkpoint of {stored.fingerprint}, and this model is "
                f"{self._fingerprint()}"
            )
        client = None
        if stored.state is not None:
            with naming_errors(f"{directory}: {stored.state} can't be loaded", StoreError):
                client = self._attached().service.restored(
                    stored.state, timeout_s=self._options.timeout_s
                )
        self._client, self._state, self._updates = client, stored.state, stored.updates
        self._snapshot = PolicySnapshot(version=stored.version, path=stored.snapshot)

    def _fingerprint(self) -> str:
        return f"{self._attached().policy.name}, rank {self._options.rank}"

    def _attached(self) -> TinkerLLM:
        if self._llm is None:
            raise AleError("the trainer has no model: call attach first")
        return self._llm


def _unscorable(llm: TinkerLLM) -> Iterator[Problem]:
    """The service computes ratios at temperature 1 and over all tokens."""
    given = {"temperature": llm.sampling.temperature, "top_p": llm.sampling.top_p}
    for name, value in given.items():
        if value != 1:
            message = f"the model is sampled with {name} {value:g}, and the service trains at 1"
            yield Problem(path=f"llm.{name}", message=message, expected=f"{name}: 1")


def _measured(output: ForwardBackwardOutput, rows: Sequence[Row]) -> Mapping[str, float]:
    """Metrics of an update: the loss, and how far log pi_theta is from the sampler's log mu."""
    found = {}
    loss = output.metrics.get("loss:sum")
    if loss is not None and math.isfinite(loss):
        found["loss"] = float(loss)
    returned = [each["logprobs"] for each in output.loss_fn_outputs if "logprobs" in each]
    if len(returned) == len(rows):
        log_ratio = np.concatenate(
            [
                (np.asarray(each.data) - row.logprobs)[row.trained]
                for each, row in zip(returned, rows, strict=True)
            ]
        )
        found["ratio_mean"] = float(np.exp(log_ratio).mean())
        found["kl_sampler"] = float(-log_ratio.mean())
    return found


def build(options: TrainerOptions, context: BuildContext) -> TinkerTrainer:
    """The trainer ``tinker``.

    Raises:
        InputError: the objective needs what the service does not return.
    """
    if options.objective is not None and (problems := [*_uncomputable(options.objective)]):
        raise InputError(problems)
    stale = context.staleness > 0 or options.epochs > 1
    if options.loss == "cross_entropy" and stale:
        _LOG.warning(
            "warning: loss: cross_entropy has no importance ratio, and some of a run's updates are "
            "of another policy than the one that sampled: importance_sampling and ppo have one"
        )
    return TinkerTrainer(options, chosen(options), context.seed, run=context.run_id)


def _uncomputable(objective: Objective) -> Iterator[Problem]:
    path = "trainer.objective"
    if objective.needs_reference:
        message = "the objective has a KL to a reference, and no reference is computed here"
        yield Problem(path=path, message=message, expected="kl: off")
    if objective.needs_entropy:
        message = "the objective has an entropy bonus, and the service returns no entropy"
        yield Problem(path=path, message=message, expected="entropy: 0")
    known: Any = sorted(NORMALISERS.keys() - {"constant"})
    if objective.normaliser not in known:
        message = f"the objective has the normaliser {objective.normaliser}"
        yield Problem(path=path, message=message, expected=f"one of {', '.join(known)}")
