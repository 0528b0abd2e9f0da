"""``ale run CONFIG``."""

import asyncio
import gc
import os
import shlex
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale._cli.common import format_option, overrides_option, registry_of

if TYPE_CHECKING:
    from ale._run.run import Run
    from ale.types import RunFinished


_CAUSES = 5
"""How many causes of broken episodes the summary names."""


@click.command("run")
@click.argument("config", type=click.Path(path_type=Path), required=False)
@overrides_option
@format_option
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Go on with a stored run, by its own config: exactly what is missing is done.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Let the model say again what it said in a stored run.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, say what would be run, and end.")
@click.option("-n", "--concurrency", type=click.IntRange(1), help="Episodes at once.")
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    format: str | None,
    resume: Path | None,
    replay: Path | None,
    dry_run: bool,
    concurrency: int | None,
) -> None:
    """Run CONFIG: from tasks to graded and credited episodes on disk.

    The first Ctrl-C finishes the episodes that are running, the second cancels them; --resume goes
    on from there.

    \b
    Examples:
      ale run configs/quickstart.yaml
      ale run configs/quickstart.yaml --set credit.type=grpo -n 16
      ale run --resume runs/20260101-120000-3f2a-quickstart
    """
    from ale._cli.plan import describe_plan
    from ale._config import load_config
    from ale._run.interrupt import Interrupt
    from ale._run.start import Surroundings, check_run, start
    from ale._run.start import resume as resume_run

    root, registry = ctx.find_root().command, registry_of(ctx)
    assert isinstance(root, click.Group)
    interrupt = Interrupt(say=lambda text: click.echo(f"\n{text}", err=True))
    outside = Surroundings(registry=registry, interrupt=interrupt)
    if (config is None) == (resume is None):
        raise click.UsageError("give either a CONFIG or --resume DIR")
    if resume is not None:
        if overrides or format or replay or dry_run:
            raise click.UsageError("--resume goes by the run's own config: only -n can be changed")
        run = resume_run(resume, outside, concurrency)
    else:
        assert config is not None
        laid_over = _all_overrides(overrides, replay, concurrency)
        loaded = load_config(config, registry, laid_over, format)
        ready = check_run(loaded, config.stem, outside)
        if dry_run:
            click.echo(describe_plan(ready))
            return
        run = start(ready, outside)
    with asyncio.Runner() as runner:
        finished = runner.run(_go(run))
        click.echo(summary(run, finished, root.list_commands(ctx)))
        code = interrupt.exit_code or (3 if finished.n_broken else 0)
        if any(not task.done() for task in run.waiting.abandoned):
            # A plugin goes on though it was cancelled; the loop would wait for it for ever.
            sys.stdout.flush()
            os._exit(code)
    ctx.exit(code)


def _all_overrides(
    overrides: tuple[str, ...], replay: Path | None, concurrency: int | None
) -> list[str]:
    made = []
    if replay is not None:
        # The path goes in quotes: it is read as YAML. A script that the config names gives way.
        quoted = str(replay).replace("'", "''")
        made += ["llm.type=scripted", "llm.script=null", f"llm.replay='{quoted}'"]
    made += overrides
    return made if concurrency is None else [*made, f"run.concurrency={concurrency}"]


async def _go(run: "Run") -> "RunFinished":
    from ale._run.start import held

    async with held(run):
        # What is there by now stays: torch and transformers are 360,000 objects to look through.
        gc.freeze()
        finished = await run.go()
        if run.interrupt.signal is not None:
            # What is left is to say how it ended; one Ctrl-C more must not take that away.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return finished


def _broken(run: "Run", number: int) -> list[str]:
    """How many episodes broke, and the most common causes."""
    from ale._store.diagnosis import Causes

    causes = Causes()
    for offset in run.store.index.broken_offsets():
        causes.add(run.store.reader.episodes.at(offset))
    lines = [f"    {line}" for line in causes.lines(_CAUSES)]
    return [f"  broken       {number}  (no reward)", *lines]


def summary(run: "Run", finished: "RunFinished", commands: Collection[str]) -> str:
    """What happened, where it is stored and what to try next, of the commands that are there."""
    from ale._store.diagnosis import learning
    from ale._store.index import SUCCESS
    from ale.text import plural, rate_line, seconds

    index = run.store.index
    relative = os.path.relpath(finished.directory)
    path = finished.directory if relative.startswith("..") else relative
    lines = [
        f"{finished.outcome}: {plural(len(index), 'episode')} on disk after "
        f"{seconds(finished.seconds)}",
        f"  success      {rate_line(finished.n_succeeded, finished.n_graded)}",
    ]
    if finished.mean_reward is not None:
        lines.append(f"  mean reward  {finished.mean_reward:.3f}")
    for step in index.steps("evaluation"):
        rewards = list(index.rewards(step, "evaluation"))
        rate = rate_line(sum(reward == SUCCESS for reward in rewards), len(rewards))
        lines.append(f"  after step {step:<3} {rate} on held-out tasks")
    if warning := learning(run.store.reader.events(), index).warning():
        lines.append(f"  training     {warning}")
    if finished.n_broken:
        lines += _broken(run, finished.n_broken)
    lines += ["stored in", f"  {path}"]
    quoted = shlex.quote(path)
    creditable = "credit" in commands and finished.n_graded > 0
    following = {
        f"ale run --resume {quoted}": finished.outcome != "completed",
        f"ale show {quoted}": "show" in commands,
        f"ale report {quoted}": "report" in commands,
        f"ale credit {quoted} --scheme ipa --scheme grpo": creditable,
    }
    if any(following.values()):
        lines += ["next", *(f"  {line}" for line, useful in following.items() if useful)]
    return "\n".join(lines)
