"""Weights & Biases as a sink for points."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import wandb  # type: ignore[import-not-found,unused-ignore]

from ale.errors import NotUsableError
from ale.types import RunStarted
from ale_trackers.tracking import Point, Tracker
from ale_trackers.wandb.options import WandbOptions
from ale_trackers.wandb.samples import Samples

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
"""Online: how long to try to reach the server before continuing offline."""
FINISH_TIMEOUT_S = 30.0
"""How long the end of the run waits for pending writes."""
MARGIN_S = 5.0
"""How much longer than wandb itself the run waits."""


def make(options: WandbOptions) -> object:
    """The observer.

    Raises:
        NotUsableError: mode online, and no key is configured. Never prompts.
    """
    if options.mode == "online" and not _has_key():
        raise NotUsableError(
            "mode online, and no key is configured: run `wandb login`, set "
            "WANDB_API_KEY, or choose mode offline"
        )
    return Tracker(
        lambda started: _open(options, started),
        name="wandb",
        window=options.window,
        finish_timeout_s=FINISH_TIMEOUT_S + MARGIN_S,
    )


def _has_key() -> bool:
    wandb.setup(settings=wandb.Settings(silent=True))  # else login asks for a user name
    return bool(wandb.login(prompt=False, verify=False))  # verifying waits for the server forever


@contextmanager
def _open(options: WandbOptions, started: RunStarted) -> Iterator[Callable[[Point], None]]:
    run = _init_or_go_offline(options, started)
    _define_axes(run)
    samples = Samples(options.samples)

    def send(point: Point) -> None:
        # Points of two axes arrive interleaved, so wandb's own step only counts rows.
        run.log({point.axis: point.index, **point.values})
        if point.episode is not None:
            samples.add(point.episode)
        elif "train/policy_version" in point.values:  # not an evaluation between two steps
            log_tables(upto=point.index)

    def log_tables(upto: int | None = None) -> None:
        if options.samples:
            for row in samples.tables(upto):
                run.log(dict(row))

    yield send
    log_tables()
    run.finish()


def _define_axes(run: wandb.Run) -> None:
    for axis, groups in (("episode", ("episode", "mean", "seconds")), ("step", ("train",))):
        run.define_metric(axis, hidden=True)
        for group in groups:
            run.define_metric(f"{group}/*", step_metric=axis)
    run.define_metric("samples", step_metric="step")


def _init_or_go_offline(options: WandbOptions, started: RunStarted) -> wandb.Run:
    if options.mode != "online":
        return _init(options, started, options.mode)
    try:
        return _init(options, started, "online")
    except wandb.Error as error:
        logger.warning(
            "wandb: server not usable (%s); continuing offline, for `wandb sync` later", error
        )
        return _init(options, started, "offline")


def _init(
    options: WandbOptions, started: RunStarted, mode: Literal["online", "offline", "disabled"]
) -> wandb.Run:
    directory = Path(started.directory)
    directory.mkdir(parents=True, exist_ok=True)
    return wandb.init(
        project=options.project,
        name=options.name or started.run_id,
        group=started.run_id,  # a resumed run is several runs to wandb
        mode=mode,
        tags=list(options.tags),
        dir=directory,
        config=dict(started.config),
        reinit="create_new",
        settings=wandb.Settings(
            console="off",  # the process's output is not captured
            silent=True,
            save_code=False,
            disable_git=True,
            init_timeout=START_TIMEOUT_S,
            finish_timeout=FINISH_TIMEOUT_S,
            finish_timeout_raises=True,
        ),
    )
