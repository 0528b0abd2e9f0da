"""Offers the observer ``tensorboard``."""

from collections.abc import Sequence
from pathlib import Path

from attrs import field, frozen

from ale.errors import NotUsableError
from ale.plugin import BuildContext, Component, Probe, doc, ge, gt, hookimpl


@frozen(kw_only=True)
class TensorBoardOptions:
    """Metrics as TensorBoard event files."""

    directory: Path | None = field(
        default=None, metadata=doc("Folder for event files; tensorboard/ in the run if null.")
    )
    window: int = field(
        default=100, validator=ge(1), metadata=doc("Episodes in a moving mean (mean/...).")
    )
    finish_timeout_s: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds that the end of the run waits for what is still to be written."),
    )


def probe() -> Probe:
    """Is the package installed?"""
    return Probe.of_package("tensorboard", remedy='pip install "tensorboard>=2.16,<3"')


def _build(options: TensorBoardOptions, context: BuildContext) -> object:
    found = probe()
    if not found.usable:
        raise NotUsableError(found.reason)
    from ale_observe_tensorboard.sink import make

    return make(options)


@hookimpl
def ale_observers() -> Sequence[Component[TensorBoardOptions, object]]:
    """TensorBoard."""
    return [
        Component(
            "tensorboard",
            TensorBoardOptions,
            _build,
            summary="Metrics as TensorBoard event files.",
            probe=probe,
        )
    ]
