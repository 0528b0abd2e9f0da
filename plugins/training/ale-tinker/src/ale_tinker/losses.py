"""Losses, as the service is asked for them in the SDK's types."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from attrs import frozen
from tinker import APIFuture, Datum, ForwardBackwardOutput, ModelInput, TensorData, TrainingClient

from ale.protocols import Objective, Tokens
from ale_tinker.data import Row
from ale_tinker.options import CLIP, TrainerOptions


class Asked(Protocol):
    """A loss over rows."""

    @property
    def normaliser(self) -> str:
        """See `Objective.normaliser`."""
        ...

    def ask(
        self, client: TrainingClient, rows: Sequence[Row]
    ) -> "APIFuture[ForwardBackwardOutput]":
        """Submit the forward and backward pass."""
        ...


@frozen(kw_only=True)
class ServiceLoss:
    """A loss that the service computes: the sum over tokens of l_t, as the README has it."""

    name: Any
    """As the SDK names it."""
    config: Mapping[str, float] | None = None
    normaliser: str = "trajectories"

    def ask(
        self, client: TrainingClient, rows: Sequence[Row]
    ) -> "APIFuture[ForwardBackwardOutput]":
        """Submit the forward and backward pass."""
        inputs = _weights if self.name == "cross_entropy" else _advantages
        data = [datum(row, inputs(row)) for row in rows]
        return client.forward_backward(data, self.name, self.config)


def _weights(row: Row) -> Mapping[str, Any]:
    return {"weights": row.weight}


def _advantages(row: Row) -> Mapping[str, Any]:
    return {"logprobs": row.logprobs, "advantages": row.weight}


def datum(row: Row, inputs: Mapping[str, Any]) -> Datum:
    """A row as the SDK takes it: token i of the input predicts target i, which is token i + 1."""
    tensors: dict[str, Any] = {"target_tokens": np.asarray(row.tokens[1:], dtype=np.int64)}
    tensors |= {name: np.asarray(values, dtype=np.float32) for name, values in inputs.items()}
    return Datum(
        model_input=ModelInput.from_ints([*row.tokens[:-1]]),
        loss_fn_inputs={name: TensorData.from_numpy(each) for name, each in tensors.items()},
    )


@frozen(kw_only=True)
class ObjectiveLoss:
    """An objective whose gradient with respect to log pi_theta is computed here.

    Its log pi_old is the sampler's own log mu, as for the losses of the service.
    """

    objective: Objective

    @property
    def normaliser(self) -> str:
        """The objective's."""
        return self.objective.normaliser

    def ask(
        self, client: TrainingClient, rows: Sequence[Row]
    ) -> "APIFuture[ForwardBackwardOutput]":
        """Submit both passes; the loss is computed between them."""
        data = [datum(row, {}) for row in rows]
        return client.forward_backward_custom(data, self.loss(rows))

    def loss(self, rows: Sequence[Row]) -> Callable[..., tuple[Any, dict[str, float]]]:
        """The loss as a function of the data and of the log-probabilities of all targets."""
        tokens = _tokens(rows)

        def computed(_: Any, logps: Sequence[Any]) -> tuple[Any, dict[str, float]]:
            logp = torch.cat(
                [each[torch.from_numpy(row.trained)] for each, row in zip(logps, rows, strict=True)]
            )
            terms = self.objective.evaluate(tokens, logp, tokens.behaviour_logp, None)
            return terms.loss, {"loss:sum": float(terms.loss.detach())}

        return computed


def _tokens(rows: Sequence[Row]) -> Tokens:
    weight = _column(rows, lambda row: row.weight, torch.float32)
    chunks: dict[tuple[int, int], int] = {}
    for row in rows:
        for each in row.chunk[row.trained].tolist():
            chunks.setdefault((row.trajectory, each), len(chunks))
    order = {each: at for at, each in enumerate(dict.fromkeys(row.trajectory for row in rows))}
    owners = [order[row.trajectory] for row in rows for _ in range(int(row.trained.sum()))]
    ids = [chunks[row.trajectory, each] for row in rows for each in row.chunk[row.trained].tolist()]
    return Tokens(
        weight=weight,
        imitation=torch.zeros_like(weight),
        behaviour_logp=_column(rows, lambda row: row.logprobs, torch.float32),
        sampled=torch.ones_like(weight, dtype=torch.bool),
        positive=_column(rows, lambda row: np.full(len(row.chunk), row.positive), torch.bool),
        chunk_id=torch.tensor(ids),
        trajectory_id=torch.tensor(owners),
    )


def _column(rows: Sequence[Row], of: Callable[[Row], Any], dtype: torch.dtype) -> Any:
    return torch.cat([torch.as_tensor(of(row)[row.trained], dtype=dtype) for row in rows])


def chosen(options: TrainerOptions) -> Asked:
    """The loss of a trainer's options."""
    if options.objective is not None:
        return ObjectiveLoss(objective=options.objective)
    if options.loss != "ppo":
        return ServiceLoss(name=options.loss or "importance_sampling")
    low = CLIP if options.clip_low is None else options.clip_low
    high = CLIP if options.clip_high is None else options.clip_high
    # The service takes bounds of the ratio, not distances from 1.
    config = {"clip_low_threshold": 1 - low, "clip_high_threshold": 1 + high}
    return ServiceLoss(name="ppo", config=config)
