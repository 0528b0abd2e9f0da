"""``ale regrade RUN``."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ale._cli.common import COMPONENT, RUN, overrides_option

if TYPE_CHECKING:
    from ale._run.regrading import Regraded, Regrading
    from ale._run.rescoring import Rescoring
    from ale.types import CriterionSpec

UNGRADED = 3


@click.command("regrade")
@click.argument("run", type=RUN)
@click.option(
    "--criterion",
    "criteria",
    metavar=COMPONENT,
    multiple=True,
    help="Grade every task by this instead of its own criteria; repeatable.",
)
@click.option(
    "--scorer",
    "scorers",
    metavar=COMPONENT,
    multiple=True,
    help="Score the chunks by this instead of the run's scorers; repeatable. Without --criterion "
    "and --reload, nothing is graded.",
)
@click.option("--reload", is_flag=True, help="Read the tasks from their source again.")
@click.option(
    "-n", "--concurrency", type=click.IntRange(1), default=1, show_default=True, help="Of episodes."
)
@overrides_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    run: Path,
    criteria: tuple[str, ...],
    scorers: tuple[str, ...],
    reload: bool,
    concurrency: int,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Grade the episodes of RUN again, with newer tests or other criteria; nothing is sampled.

    Files that the tasks name, such as tests, are read again. A criterion that looks into the
    sandbox needs the state that the agent left: `run.keep` of a run keeps it. The scores are stored
    in the folder `regraded` of RUN, whose own records stay as they are. A verdict that was
    contested stays so where there is no judge. The scorers of the run's config, or of `--scorer`,
    score the chunks again: in `step_scores` of RUN, from where `step-scores` takes them. Exit
    status 3 if some episodes could not be graded. After a Ctrl-C, those that are done are stored,
    and with `--scorer` the same command scores the others.

    \b
    Examples:
      ale regrade latest
      ale regrade runs/20260101-120000-3f2a-maths --criterion numeric_answer:expected=42
      ale regrade runs/20260101-120000-3f2a-terminal --reload -n 4
      ale regrade latest --scorer rules:max_chars=4000
    """
    import json

    from ale._run.interrupt import Interrupt
    from ale._run.regrading import regrade
    from ale._run.rescoring import rescore
    from ale._run.start import Host
    from ale._store import RunReader
    from ale._store.codec import plain
    from ale._store.lock import holder
    from ale.runs import parse_choice

    reader = RunReader(run)
    if (pid := holder(run)) is not None:
        click.echo(
            f"process {pid} is still writing {run}: only episodes that have ended are graded",
            err=True,
        )
    interrupt = Interrupt(show=lambda text: click.echo(f"\n{text}", err=True))
    host = Host(registry=ctx.obj, interrupt=interrupt)
    code = 0
    if criteria or reload or not scorers:
        made = asyncio.run(
            regrade(
                reader,
                host,
                criteria=[_criterion(each) for each in criteria],
                overrides=overrides,
                reload=reload,
                concurrency=concurrency,
                progress=lambda each: click.echo(_progress(each), err=True),
            )
        )
        if as_json:
            click.echo(json.dumps(plain(made.episodes), indent=2, ensure_ascii=False))
        else:
            for line in _lines(made):
                click.echo(line)
        code = UNGRADED if any(each.problem for each in made.episodes) else 0
        if interrupt.signal is not None and made.unseen:
            again = f"interrupted: {made.unseen} not looked at; the same command grades all again"
            click.echo(again, err=True)
    if interrupt.signal is None:
        chosen = [parse_choice(text, option="--scorer") for text in scorers]
        scored = asyncio.run(
            rescore(reader, host, scorers=chosen, overrides=overrides, concurrency=concurrency)
        )
        for line in _scored_lines(scored):
            click.echo(line, err=as_json)
    ctx.exit(interrupt.exit_code or code)


def _scored_lines(scored: "Rescoring") -> Iterator[str]:
    """Lines for each scorer, and where the scores are."""
    from ale._store.diagnosis import scored as described

    for name, text in described(scored.rows):
        yield f"scored        {name}: {text}" if name else f"  {text}"
    if scored.path is not None:
        yield f"scores in {scored.path}"


def _criterion(text: str) -> "CriterionSpec":
    from ale.runs import parse_choice
    from ale.types import CriterionSpec

    found: dict[str, Any] = parse_choice(text, option="--criterion").plain()
    name = found.pop("type")
    return CriterionSpec(type=str(name), options=found)


def _lines(made: "Regrading") -> Iterator[str]:
    from ale.text import counted

    episodes = made.episodes
    graded = [each for each in episodes if each.problem is None]
    kept = sum(each.state == "kept" for each in graded)
    total = counted(len(episodes) + made.unseen, "episode")
    yield f"graded again  {len(graded)} of {total}, {kept} in kept states"
    both = [each for each in graded if each.old is not None]
    if both:
        yield f"old success   {_passed(each.old for each in both)} of {len(both)}"
        yield f"new success   {_passed(each.new for each in both)} of {len(both)}"
    changed = [each for each in graded if each.changed]
    if graded:
        yield f"changed       {len(changed)}"
    yield from (f"  {_line(each)}" for each in changed)
    if own := sum(each.without_judge for each in graded):
        yield f"no judge      {own}  (graded in the agent's own sandbox, which has no judge)"
    if unsure := [each for each in graded if each.contested]:
        yield f"contested     {len(unsure)}  (what they count as: run.contested)"
        yield from (f"  {each.episode}" for each in unsure)
    left = [each for each in episodes if each.problem is not None]
    if left:
        yield f"not graded    {len(left)}"
        yield from (f"  {each.episode}: {each.problem}" for each in left)
    if made.path is None:
        yield "nothing was graded, so nothing is stored"
    else:
        yield f"stored in {made.path}"


def _passed(rewards: Iterable[float | None]) -> int:
    return sum(reward == 1 for reward in rewards)


def _progress(each: "Regraded") -> str:
    return f"{'graded' if each.problem is None else 'not graded'} {_line(each)}"


def _line(each: "Regraded") -> str:
    if each.problem is not None:
        return f"{each.episode}: {each.problem}"
    old = "broken" if each.old is None else f"{each.old:.3g}"
    why = next((score.detail for score in each.scores if score.detail), "").partition("\n")[0]
    return f"{each.episode}  {old} -> {each.new:.3g}  {why}".rstrip()
