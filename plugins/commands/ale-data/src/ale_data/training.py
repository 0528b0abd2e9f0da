"""``ale train rows``: train the model of a config on rows."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ale.errors import InputError, StoreError
from ale.plugin import BuildContext
from ale.protocols import LLM, Trainer
from ale.runs import Registry, build_choice, check_config, read_sections
from ale.strict import from_plain
from ale.types import StepReport
from ale_rows import Trained, check_scored, train


def train_on_rows(
    config: Path,
    source: Path,
    out: Path,
    registry: Registry,
    *,
    overrides: Sequence[str],
    groups: int,
    epochs: int,
    on_step: Callable[[StepReport], object],
) -> Trained:
    """Train the model of a config on scored rows.

    Args:
        config: a config of `ale run`, of which the model, the trainer and, of ``run``, the seed and
            how many checkpoints to keep are used; its other sections are named on stderr.
        overrides: as of ``--set``.

    Raises:
        InputError: the config is invalid or has no trainer, or the file has no scored rows.
        AleError: a component failed.
    """
    read_sections(
        config,
        registry,
        command="ale train rows",
        uses=("llm", "trainer", "run"),
        others=partial(print, file=sys.stderr),
    )
    whole = check_config(config, registry, overrides).config
    if whole.get("trainer") is None:
        raise InputError.of("needed to train", file=str(config), path="trainer")
    check_scored(source)  # before a model is loaded
    context = BuildContext(
        seed=whole["run"]["seed"],
        run_id=out.name,
        run_directory=out,
        environ=dict(os.environ),
    )
    if out.exists() and not out.is_dir():
        raise InputError.of(f"{out} is not a folder", path="out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{out} can't be created: {error.strerror}") from error

    def built(kind: str) -> Any:
        section = from_plain(whole[kind], file=str(config))
        return build_choice(section, kind, registry, context)[1]

    llm: LLM | None = None if whole.get("llm") is None else built("llm")
    trainer: Trainer = built("trainer")

    options = {"trainer": whole["trainer"], "run": {"seed": whole["run"]["seed"]}}

    async def training() -> Trained:
        try:
            return await train(
                source,
                out,
                trainer,
                llm,
                groups=groups,
                epochs=epochs,
                options=options,
                keep=whole["run"]["keep_checkpoints"],
                keep_every=whole["run"]["keep_checkpoints_every"],
                section=whole.get("llm"),
                on_step=on_step,
            )
        finally:
            if llm is not None:
                await llm.aclose()

    return asyncio.run(training())
