"""Computes log-probabilities of samples under a model, without changing it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor

from ale_trainer_policy.options import LearnOptions
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.scoring import Scored, score
from ale_trainer_policy.tree import Datum, pack
from ale_training.tokens import context_of


class Teacher(Protocol):
    """A model that the policy is compared with."""

    @property
    def context(self) -> int:
        """Most tokens that it reads."""
        ...

    def logps(self, pieces: Sequence[Sequence[Sample]]) -> list[Floats]:
        """log pi of each micro-batch."""
        ...


class Scorer:
    """Scores samples as the trained model does.

    Args:
        model: a transformers causal model.
        options: those of any trainer of this package.
    """

    def __init__(self, model: Any, options: LearnOptions) -> None:
        self.model = model
        self.options = options
        self.temperature = 1.0 if options.temperature is None else options.temperature

    @property
    def context(self) -> int:
        """As `Teacher.context`."""
        return context_of(self.model.config)

    def packed(self, piece: Sequence[Sample]) -> Datum:
        """A micro-batch as a datum; prefixes are shared unless ``packing: packed``."""
        return pack(piece, shared=self.options.packing != "packed")

    def logps(self, pieces: Sequence[Sequence[Sample]]) -> list[Floats]:
        """log pi of each micro-batch."""
        return [self.logp(piece) for piece in pieces]

    def logp(
        self, samples: Sequence[Sample], weights: Mapping[str, Tensor] | None = None
    ) -> Floats:
        """log pi of the tokens of these samples, in their order, without a gradient.

        Args:
            weights: parameters to use instead of the model's own, by name.
        """
        with self._mode(training=False), torch.no_grad(), self._precision():
            scored = self._score(self.packed(samples), weights=weights)
        found: Floats = scored.logp.double().cpu().numpy()
        return found

    def _score(self, datum: Datum, **how: Any) -> Scored:
        """`score`, as the options say."""
        return score(
            self.model,
            datum,
            packing=self.options.packing,
            temperature=self.temperature,
            logits_mb=self.options.logits_mb,
            **how,
        )

    def _precision(self) -> AbstractContextManager[Any]:
        if self.options.precision == "bf16":
            device = next(self.model.parameters()).device
            return torch.autocast(device.type, torch.bfloat16)
        return nullcontext()

    @contextmanager
    def _mode(self, *, training: bool) -> Iterator[None]:
        before = self.model.training
        self.model.train(training)
        try:
            yield
        finally:
            self.model.train(before)
