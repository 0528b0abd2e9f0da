"""``ale train``; its implementation is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale_trainer_trl.learning import DpoTraining, GrpoTraining, Progress


@click.group("train")
def train() -> None:
    """Train a model on a data set: of preferences or prompts with TRL, or of scored rows.

    \b
    Example:
      ale train dpo dpo.yaml
    """


_config = click.argument("config", type=click.Path(path_type=Path))
_set = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a config value; repeatable.",
)


@train.command("dpo")
@_config
@_set
def dpo(config: Path, overrides: tuple[str, ...]) -> None:
    """Train on preferences: rows of prompt, chosen and rejected.

    CONFIG is YAML with model_name_or_path, dataset_path, output_dir and further options. Ctrl-C
    stops the training after the current update, a second one at once; the same command resumes
    from the last checkpoint.

    \b
    Examples:
      ale train dpo dpo.yaml
      ale train dpo dpo.yaml --set beta=0.2 --set lora.r=8
    """
    from ale_trainer_trl.learning import DpoTraining, read_training

    _train(read_training(DpoTraining, config, overrides))


@train.command("grpo")
@_config
@_set
def grpo(config: Path, overrides: tuple[str, ...]) -> None:
    """Train on prompts, with a reward function for sampled completions.

    CONFIG is as for `ale train dpo`, with `reward: module:function` or `reward: file.py:function`.
    To train on tasks in sandboxes, use `ale run` with trainer: {type: grpo}.

    \b
    Example:
      ale train grpo grpo.yaml
    """
    from ale_trainer_trl.learning import GrpoTraining, read_training

    _train(read_training(GrpoTraining, config, overrides))


def _train(training: DpoTraining | GrpoTraining) -> None:
    """Train to the end; if the user stops it, exit with the signal's status."""
    from ale_trainer_trl import learning
    from ale_trainer_trl.stop_signal import StopSignal

    click.echo(f"training {training.model_name_or_path} on {training.dataset_path}", err=True)
    stop_signal = StopSignal()
    try:
        trained = learning.train(training, progress=_print_progress, stop=stop_signal)
    except learning.StoppedError as stopped:
        if stop_signal.signal is None:
            raise
        click.echo(f"{stopped}; the same command resumes from there", err=True)
        raise SystemExit(128 + stop_signal.signal) from stopped
    if trained.already_trained:
        again = f"delete {trained.output_dir} or set resume: never to train again"
        click.echo(f"already trained; nothing to do ({again})", err=True)
    click.echo(trained.summary())


def _print_progress(progress: Progress) -> None:
    """A line on standard error for each report with metrics."""
    if progress.metrics:
        click.echo(progress.line(), err=True)
