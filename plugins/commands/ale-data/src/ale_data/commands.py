"""The click commands; their implementations are imported when they run.

`ale --help` imports this module, so it imports only click and `ale.commands`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale.commands import COMPONENT, PATH, RUN, overrides_option

if TYPE_CHECKING:
    from ale.runs import Registry
    from ale.types import StepReport
    from ale_rows import Report

_source = click.option(
    "--in", "source", type=PATH, required=True, metavar="FILE", help="Rows to read."
)
_out = click.option("--out", type=PATH, required=True, metavar="FILE", help="Rows to write.")
_table_out = click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="PATH",
    help="A .jsonl or .parquet file, or (no suffix) a folder of Hugging Face datasets.",
)


def _print(report: "Report") -> None:
    for line in report.lines():
        click.echo(line)


@click.group("data")
def data() -> None:
    """Collect episodes, score them, make data sets of them; import and export other formats.

    \b
    Examples:
      ale data collect runs/ --out datasets/raw.jsonl
      ale data import chats.jsonl --format openai --out datasets/raw.jsonl
    """


train = click.Group("train")


@data.command("collect")
@click.argument("runs", nargs=-1, required=True, type=RUN)
@_out
@click.option(
    "--split",
    type=click.Choice(["train", "evaluation", "all"]),
    default="train",
    show_default=True,
    help="Which episodes to collect. Evaluations are never scored.",
)
@click.option("--broken", is_flag=True, help="Include episodes without a reward.")
@click.option(
    "--tools",
    type=PATH,
    metavar="FILE",
    help="JSON list of tools that overrides the recorded ones, for runs without them.",
)
@click.option(
    "--verdicts",
    is_flag=True,
    help="Only episodes that people have marked in `ale view`: the reward is 1 for good, 0 for "
    "bad.",
)
def collect(
    runs: tuple[Path, ...],
    out: Path,
    split: str,
    broken: bool,
    tools: Path | None,
    verdicts: bool,
) -> None:
    """Write the episodes of RUNS as one file of rows.

    RUNS are run directories, or folders that contain some.

    \b
    Examples:
      ale data collect runs/ --out datasets/raw.jsonl
      ale data collect runs/old --tools tools.json --out datasets/raw.jsonl
      ale data collect runs/ --verdicts --out datasets/marked.jsonl
    """
    from ale_rows import collect as collected
    from ale_rows import read_tools

    specs = None if tools is None else read_tools(tools)
    report = collected(runs, out, split=split, broken=broken, tools=specs, verdicts=verdicts)  # type: ignore[arg-type]
    _print(report)
    if verdicts and not (report.notes["marked good"] or report.notes["marked bad"]):
        where = " ".join(map(str, runs)) if len(runs) == 1 else "FOLDER"
        message = f"No episode is marked: 'ale view {where}' shows them, with the keys g for good "
        click.echo(f"{message}and b for bad; programs mark them by ale.runs.add_note.", err=True)


@data.command("score")
@_source
@_out
@click.option(
    "--chunker",
    metavar=COMPONENT,
    help="Chunker. Default: that of the episodes' runs; ale-lite for those of no run.",
)
@click.option(
    "--scheme",
    metavar=COMPONENT,
    help="Credit scheme. Default: that of the episodes' runs; ipa-lite for those of no run.",
)
@click.pass_obj
def score(
    registry: "Registry", source: Path, out: Path, chunker: str | None, scheme: str | None
) -> None:
    """Cut collected episodes into chunks and assign credit to each.

    For schemes with a baseline, the baseline is the mean reward over the file.

    \b
    Examples:
      ale data score --in datasets/raw.jsonl --out datasets/scored.jsonl
      ale data score --in raw.jsonl --out scored.jsonl --chunker interaction --scheme ipa:gamma=0.9
    """
    from ale_rows import score as scored

    _print(scored(source, out, registry, chunker=chunker, scheme=scheme))


@data.command("dpo")
@_source
@_table_out
@click.option(
    "--pairing",
    type=click.Choice(["same-prompt", "same-trajectory"]),
    default="same-prompt",
    show_default=True,
    help="Answers to one prompt, or the best and worst chunk of each trajectory.",
)
@click.option(
    "--by",
    type=click.Choice(["episode", "reward", "return", "weight"]),
    help="Value to compare by. Default: the episode's reward; with same-trajectory, the chunk's.",
)
@click.option(
    "--min-margin",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Leave out pairs whose values differ by less.",
)
def dpo(source: Path, out: Path, pairing: str, by: str | None, min_margin: float) -> None:
    """Write preference pairs: a prompt, a better answer and a worse one.

    \b
    Examples:
      ale data dpo --in datasets/scored.jsonl --out datasets/dpo.jsonl
      ale data dpo --in scored.jsonl --out dpo.parquet --pairing same-trajectory
    """
    from ale_rows import make_dpo

    _print(make_dpo(source, out, pairing=pairing, by=by, min_margin=min_margin))  # type: ignore[arg-type]


@data.command("sft")
@_source
@_table_out
@click.option(
    "--min-reward",
    type=float,
    help="Only episodes with at least this reward; 0 imitates failures too. Default, without "
    "--min-weight: those that succeeded (reward 1), and those without a reward, as imported chats.",
)
@click.option(
    "--min-weight",
    type=float,
    help="Train only on answers whose chunks all have at least this weight.",
)
def sft(source: Path, out: Path, min_reward: float | None, min_weight: float | None) -> None:
    """Write conversations for imitation, with the answers to train on.

    \b
    Example:
      ale data sft --in datasets/raw.jsonl --out datasets/sft.jsonl --min-reward 1
    """
    from ale_rows import make_sft

    _print(make_sft(source, out, min_reward=min_reward, min_weight=min_weight))


@data.command("rl")
@_source
@_table_out
@click.option(
    "--min-abs-weight",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Leave out chunks with a smaller absolute weight.",
)
def rl(source: Path, out: Path, min_abs_weight: float) -> None:
    """Write a row per chunk: the conversation before it, its answers and calls, its credit.

    \b
    Example:
      ale data rl --in datasets/scored.jsonl --out datasets/rl.jsonl
    """
    from ale_rows import make_rl

    _print(make_rl(source, out, min_abs_weight=min_abs_weight))


@train.command("rows")
@click.argument("config", type=PATH)
@_source
@click.option(
    "--out", type=PATH, required=True, metavar="FOLDER", help="Folder for the checkpoints."
)
@overrides_option
@click.option(
    "--groups",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Groups (the rollouts of a task) per step.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Passes over the rows.",
)
@click.pass_obj
def rows(
    registry: "Registry",
    config: Path,
    source: Path,
    out: Path,
    overrides: tuple[str, ...],
    groups: int,
    epochs: int,
) -> None:
    """Train the model of CONFIG with its trainer on scored rows; nothing is sampled.

    CONFIG is a config of `ale run`. Every step ends with a checkpoint, of which
    run.keep_checkpoints are kept; the same command resumes after the newest.

    \b
    Example:
      ale train rows configs/quickstart.yaml --in datasets/scored.jsonl --out outputs/offline
    """
    from ale.text import counted
    from ale_data.training import train_on_rows

    def print_step(report: "StepReport") -> None:
        loss = report.metrics.get("loss")
        suffix = "" if loss is None else f"  loss {loss:.4f}"
        click.echo(f"step {report.step}: policy {report.policy_version}{suffix}")

    try:
        done = train_on_rows(
            config,
            source,
            out,
            registry,
            overrides=overrides,
            groups=groups,
            epochs=epochs,
            on_step=print_step,
        )
    except KeyboardInterrupt:
        if any((out / "checkpoints").glob("[0-9]*")):
            click.echo(f"\nThe same command resumes after the last step in {out}.", err=True)
        raise
    if done.resumed:
        click.echo(f"{counted(done.resumed, 'step')} done earlier")
    click.echo(f"{counted(done.steps, 'step')}; {done.checkpoint}")
    if done.learned is False and done.resumed < done.steps:
        why = f"see the metrics in {out / 'events.jsonl'}"
        click.echo(f"No step changed the policy; {why}.", err=True)


_FORMATS = click.Choice(["openai", "sharegpt", "trl", "atif"])


@data.command("import")
@click.argument("files", nargs=-1, required=True, type=PATH)
@_out
@click.option("--format", "form", type=_FORMATS, required=True, help="Format of the files.")
@click.option(
    "--reward",
    type=float,
    help="Reward of the episodes, because such files have none; those that `ale data export` "
    "wrote as atif keep their own.",
)
def import_(files: tuple[Path, ...], out: Path, form: str, reward: float | None) -> None:
    """Import FILES of another format as rows: episodes, or preferences if they hold these.

    openai is the format of chat fine-tuning, atif that of Harbor's agent trajectories.

    \b
    Examples:
      ale data import chats.jsonl --format openai --out raw.jsonl
      ale data import jobs/ --format atif --out raw.jsonl --reward 1
    """
    from ale_rows import import_rows

    _print(import_rows(files, out, form=form, reward=reward))  # type: ignore[arg-type]


@data.command("export")
@_source
@_out
@click.option("--format", "form", type=_FORMATS, required=True, help="Format to write.")
def export(source: Path, out: Path, form: str) -> None:
    """Export episodes, conversations or preferences in another format.

    atif writes one file per episode if --out has no suffix, else one line per episode.

    \b
    Examples:
      ale data export --in sft.jsonl --out chats.jsonl --format openai
      ale data export --in raw.jsonl --out trajectories --format atif
    """
    from ale_rows import export_rows

    _print(export_rows(source, out, form=form))  # type: ignore[arg-type]
