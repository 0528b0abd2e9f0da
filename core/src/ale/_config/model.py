"""A whole config, typed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen, validators

from ale._registry import Registration
from ale.plugin import doc, ge, gt
from ale.strict import describe


@frozen(kw_only=True)
class Selected:
    """A part that the config picked: whose it is, and its options."""

    registration: Registration
    options: Any

    @property
    def name(self) -> str:
        """What stands after ``type:``."""
        return self.registration.component.name


_LONGEST_NAME = 200
"""Bytes; a file system takes 255, of which a time and a few letters have their share."""


def _part_of_a_path(_: object, __: object, value: str | None) -> None:
    if value is None:
        return
    if not value.isprintable() or "/" in value or not 0 < len(value.encode()) <= _LONGEST_NAME:
        raise ValueError(f"expected part of a folder's name, without '/', found {describe(value)}")


@frozen(kw_only=True)
class RunOptions:
    """How the run itself goes. Section ``run``."""

    name: str | None = field(
        default=None,
        validator=_part_of_a_path,
        metadata=doc("Part of the run directory's name."),
    )
    directory: Path | None = field(
        default=None, metadata=doc("Where run directories are made; default: runs/ here.")
    )
    rollouts: int = field(
        default=1, validator=ge(1), metadata=doc("Episodes per task and step: the group's size.")
    )
    steps: int = field(default=1, validator=ge(1), metadata=doc("Training steps."))
    tasks_per_step: int | None = field(
        default=None,
        validator=validators.optional(ge(1)),
        metadata=doc("Tasks drawn for each step, no task twice; default: all of them."),
    )
    staleness: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "Steps by which the weights that sample may be behind those that are trained: above "
            "0 the next episodes run while the trainer learns from the last."
        ),
    )
    keep_checkpoints: int | None = field(
        default=None,
        validator=validators.optional(ge(1)),
        metadata=doc("Newest checkpoints that are kept; default: all, one for each step."),
    )
    concurrency: int = field(default=8, validator=ge(1), metadata=doc("Episodes at once."))
    seed: int = field(default=0, validator=ge(0), metadata=doc("Every random choice follows it."))
    retries: int = field(
        default=1,
        validator=ge(0),
        metadata=doc(
            "How often a broken episode is tried again; never a failed one, nor one that the model "
            "broke, whose component has retries of its own."
        ),
    )
    open_timeout_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Seconds to open or close a sandbox.")
    )
    setup_timeout_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Seconds for each setup step.")
    )
    grading_timeout_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Seconds for each criterion.")
    )
    grace_s: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds past its time limit after which an agent is cut off."),
    )


@frozen(kw_only=True)
class EvaluationOptions:
    """How the policy is measured while it is trained. Section ``evaluation``, beside its tasks."""

    every: int = field(
        default=10,
        validator=ge(1),
        metadata=doc("Training steps between two evaluations; the first comes before all steps."),
    )
    rollouts: int = field(default=1, validator=ge(1), metadata=doc("Episodes per task."))


@frozen(kw_only=True)
class Evaluation:
    """Section ``evaluation``."""

    tasks: Selected
    options: EvaluationOptions


@frozen(kw_only=True)
class RunConfig:
    """Everything that one run is made of."""

    tasks: Selected
    sandbox: Selected
    llm: Selected | None
    agent: Selected
    chunker: Selected
    credit: Selected
    starts: Selected | None
    trainer: Selected | None
    evaluation: Evaluation | None
    observers: tuple[Selected, ...]
    run: RunOptions
    resolved: dict[str, Any] = field(repr=False)
    """The merged config as plain values, paths made absolute: what the manifest keeps."""
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    """Variables over those of the process, from a format with keys written in it. Never stored."""
    environ_source: Mapping[str, str | None] | None = None
    """Where they are from, for a resume: the file's path and its format. None without any."""
