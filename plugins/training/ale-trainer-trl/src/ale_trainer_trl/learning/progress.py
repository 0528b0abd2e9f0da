"""Progress of a training, and its result."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from ale.errors import AleError
from ale.text import counted

SHOWN = ("loss", "reward", "rewards/accuracies", "rewards/margins", "grad_norm", "learning_rate")
"""Metrics of one line, in this order."""


@frozen(kw_only=True)
class Progress:
    """Progress after an update."""

    step: int
    """Updates so far, those before a resume included."""
    steps: int
    """Updates in all."""
    epoch: float
    metrics: Mapping[str, float] = field(factory=dict)
    """Means since the last report; empty for an update without a report."""

    def line(self) -> str:
        """Text for the terminal."""
        shown = [f"{name} {self.metrics[name]:.4g}" for name in SHOWN if name in self.metrics]
        return "  ".join([f"step {self.step}/{self.steps}", *shown])


Listener = Callable[[Progress], None]
Stop = Callable[[], bool]
"""Called after every update; True ends the training."""


class StoppedError(AleError):
    """A training was stopped before its end; the next call resumes it.

    Args:
        step: updates that are done and checkpointed.
        steps: updates in all.
    """

    def __init__(self, step: int, steps: int) -> None:
        super().__init__(f"stopped after update {step} of {steps}")
        self.step = step
        self.steps = steps


@frozen(kw_only=True)
class Trained:
    """Result of a training."""

    method: str
    output_dir: Path
    adapter: bool
    """True where `output_dir` holds an adapter, not a whole model."""
    steps: int
    """Updates in all."""
    rows: int
    """Rows that were trained on."""
    left_out: Mapping[str, int] = field(factory=dict)
    """Rows left out, by reason."""
    resumed_from: int | None = None
    """The update from which an interrupted training was resumed; None if it was not."""
    metrics: Mapping[str, float] = field(factory=dict)
    """Metrics of the last report and, with the prefix ``eval_``, of the held-out rows."""
    equal_rewards: bool = False
    """True if the completions of each prompt had equal rewards, in all updates of this call: then
    no advantage taught anything."""
    already_trained: bool = False
    """True if an earlier call had finished the training, and this one did nothing."""

    def summary(self) -> str:
        """Text for the terminal: what was trained, on what, and where it is."""
        what = "adapter" if self.adapter else "model"
        resumed = "" if self.resumed_from is None else f" (resumed from {self.resumed_from})"
        left_out = ", ".join(f"{n} left out: {why}" for why, n in self.left_out.items() if n)
        lines = [
            f"{self.method}: {counted(self.steps, 'update')}{resumed} on "
            + counted(self.rows, "row")
            + (f"; {left_out}" if left_out else ""),
            f"{what} in {self.output_dir}",
        ]
        if self.equal_rewards:
            lines.append(
                "the completions of each prompt had equal rewards in all updates: there was "
                "nothing to learn from"
            )
        held_out = [
            f"{name.removeprefix('eval_')} {self.metrics[name]:.4g}"
            for name in ("eval_loss", "eval_rewards/accuracies", "eval_rewards/margins")
            if name in self.metrics
        ]
        if held_out:
            lines.append("held out: " + ", ".join(held_out))
        return "\n".join(lines)
