"""What a training says while it runs, and what it says in the end."""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import field, frozen

from ale.errors import AleError

SHOWN = ("loss", "reward", "rewards/accuracies", "rewards/margins", "grad_norm", "learning_rate")
"""Metrics of one line, in this order."""


@frozen(kw_only=True)
class Progress:
    """One update is done."""

    step: int
    """Updates so far, those before a resume included."""
    steps: int
    """Updates in all."""
    epoch: float
    metrics: Mapping[str, float] = field(factory=dict)
    """Means since the last time there were any; empty in between."""

    def line(self) -> str:
        """For people."""
        shown = [f"{name} {self.metrics[name]:.4g}" for name in SHOWN if name in self.metrics]
        return "  ".join([f"step {self.step}/{self.steps}", *shown])


Listener = Callable[[Progress], None]
Stop = Callable[[], bool]
"""Asked after every update whether to end there."""


class StoppedError(AleError):
    """A training was asked to stop before its end; the next call goes on from there.

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
    """What a training has left."""

    method: str
    output_dir: Path
    adapter: bool
    """True where `output_dir` holds an adapter, not a whole model."""
    steps: int
    """Updates in all."""
    rows: int
    """Rows that were trained on."""
    left_out: Mapping[str, int] = field(factory=dict)
    """Rows that were not, by reason."""
    resumed_from: int | None = None
    """The update after which an interrupted training went on; None where it began anew."""
    metrics: Mapping[str, float] = field(factory=dict)
    """Of the last report, and with the prefix ``eval_`` of the held-out rows."""

    def summary(self) -> str:
        """For people: what was trained, on what, and where it is."""
        what = "adapter" if self.adapter else "model"
        begun = "" if self.resumed_from is None else f" (from {self.resumed_from} on)"
        left_out = ", ".join(f"{n} left out: {why}" for why, n in self.left_out.items() if n)
        lines = [
            f"{self.method}: {self.steps} updates{begun} on {self.rows} rows"
            + (f"; {left_out}" if left_out else ""),
            f"{what} in {self.output_dir}",
        ]
        held_out = [
            f"{name.removeprefix('eval_')} {self.metrics[name]:.4g}"
            for name in ("eval_loss", "eval_rewards/accuracies", "eval_rewards/margins")
            if name in self.metrics
        ]
        if held_out:
            lines.append("held out: " + ", ".join(held_out))
        return "\n".join(lines)
