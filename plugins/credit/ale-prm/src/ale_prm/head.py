"""A linear head: how it is fitted, how well it does on what it has not seen, and its files."""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ale.errors import InputError, StoreError
from ale.files import replacing, write_whole

TENSORS, ABOUT = "prm.safetensors", "prm.json"
GOOD = 0.5
"""A label from here on counts as good for the AUC."""
_BINS = 10
_RIDGE = 0.01
_SAME = 0.05


class HeldOut(msgspec.Struct, kw_only=True, frozen=True):
    """How well the head does on trajectories that it has not seen."""

    trajectories: int
    steps: int
    auc: float | None
    """Share of the pairs of a good and a bad step whose scores are in the right order, equal ones
    counting half; None if all are good, or all bad."""
    calibration: float
    """Distance of mean score and mean label in ten bins of the score, weighted by their steps."""
    squared: float
    """Mean squared error of the score."""
    squared_of_mean: float
    """That of a score that is always the mean label of the training steps."""


class About(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The facts stored beside the weights."""

    schema: int = 1
    model: str
    weights: str
    """`FrozenModel.digest` of the model."""
    labels: str
    shuffled: bool
    trajectories: int
    steps: int
    held_out: HeldOut


class Head(msgspec.Struct, frozen=True):
    """score = sigmoid(weight . vector + bias)."""

    weight: Tensor
    """float64, (width of a vector,)."""
    bias: Tensor
    """float64, ()."""

    def scores(self, vectors: Tensor) -> list[float]:
        """A score in [0, 1] for each vector, (n, width)."""
        return torch.sigmoid(vectors.double() @ self.weight + self.bias).tolist()


def fit(vectors: Tensor, labels: Sequence[float]) -> Head:
    """Logistic regression on soft labels: a convex problem, so the result depends on no seed.

    Minimises mean_i BCE(sigmoid(w . z_i + b), y_i) + 0.01 / 2 * |w|^2, with z the vectors less
    their mean, divided by their standard deviation; both are then folded into the weights.

    Args:
        vectors: (n, width).
        labels: n values in [0, 1].
    """
    x, y = vectors.double(), torch.tensor(labels, dtype=torch.float64)
    mean, spread = x.mean(0), x.std(0, unbiased=False)
    z = (x - mean) / torch.where(spread > 1e-6, spread, torch.inf)
    parameters = torch.zeros(x.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameters], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = z @ parameters[:-1] + parameters[-1]
        value = torch.nn.functional.binary_cross_entropy_with_logits(logits, y)
        value = value + _RIDGE / 2 * parameters[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    found = parameters.detach()
    weight = found[:-1] / torch.where(spread > 1e-6, spread, torch.inf)
    return Head(weight, found[-1] - weight @ mean)


def auc(scores: Sequence[float], labels: Sequence[float]) -> float | None:
    """See `HeldOut.auc`."""
    good = [score for score, label in zip(scores, labels, strict=True) if label >= GOOD]
    bad = [score for score, label in zip(scores, labels, strict=True) if label < GOOD]
    if not good or not bad:
        return None
    won = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    return won / (len(good) * len(bad))


def calibration_error(scores: Sequence[float], labels: Sequence[float]) -> float:
    """See `HeldOut.calibration`."""
    bins: dict[int, list[float]] = {}
    for score, label in zip(scores, labels, strict=True):
        bins.setdefault(min(_BINS - 1, int(score * _BINS)), []).append(score - label)
    return math.fsum(abs(math.fsum(each)) for each in bins.values()) / len(scores)


def squared_error(scores: Sequence[float], labels: Sequence[float]) -> float:
    """The mean square of score less label, as of Brier (1950)."""
    pairs = zip(scores, labels, strict=True)
    return math.fsum((score - label) ** 2 for score, label in pairs) / len(scores)


def write(folder: Path, head: Head, probe: Tensor, about: About) -> None:
    """Write both files; raises `StoreError`."""
    path = folder / TENSORS
    tensors = {"weight": head.weight, "bias": head.bias, "probe": probe}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            save_file(tensors, partial)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path} can't be written: {error}") from error
    write_whole(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about)) + b"\n")


def read(folder: Path, *, path: str) -> tuple[Head, Tensor, About]:
    """The head, the probe of its model, and what is stored about it.

    Raises:
        InputError: the folder holds no head.
    """
    try:
        about = msgspec.json.decode((folder / ABOUT).read_bytes(), type=About)
        tensors = load_file(folder / TENSORS)
        head, probe = Head(tensors["weight"], tensors["bias"]), tensors["probe"]
        _check(head, probe, about)
    except (OSError, msgspec.MsgspecError, SafetensorError, KeyError, ValueError) as error:
        message = f"{folder} holds no head of a process reward model: {error}"
        hint = "ale train prm trains one"
        raise InputError.of(message, path=path, hint=hint) from error
    return head, probe, about


def _check(head: Head, probe: Tensor, about: About) -> None:
    if about.schema != 1:
        raise ValueError(f"its schema is {about.schema}, which this version does not know")
    if not head.weight.dtype == head.bias.dtype == torch.float64 or probe.dtype != torch.float32:
        raise ValueError("expected a weight and a bias of float64, and a probe of float32")
    if head.weight.dim() != 1 or head.bias.dim() or probe.shape != head.weight.shape:
        raise ValueError("expected a weight and a probe of one width, and a single bias")
    if not all(bool(each.isfinite().all()) for each in (head.weight, head.bias, probe)):
        raise ValueError("it has values that are no finite numbers")


def is_of(probe: Tensor, stored: Tensor) -> bool:
    """Does the model with this probe read a text as the head's did? Other precisions may."""
    if probe.shape != stored.shape:
        return False
    return bool((probe - stored).norm() <= _SAME * stored.norm())
