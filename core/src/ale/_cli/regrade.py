"""``ale regrade RUN``."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ale._cli.common import COMPONENT, RUN, overrides_option

if TYPE_CHECKING:
    from ale._run.regrading import Regraded
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
    reload: bool,
    concurrency: int,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Grade the episodes of RUN again, with newer tests or other criteria; nothing is sampled.

    Files that the tasks name, such as tests, are read again. A criterion that looks into the
    sandbox needs the state that the agent left: `run.keep` of a run keeps it. The scores are stored
    in the folder `regraded` of RUN, whose own records stay as they are. Exit status 3 if some
    episodes could not be graded.

    \b
    Examples:
      ale regrade latest
      ale regrade runs/20260101-120000-3f2a-maths --criterion numeric_answer:expected=42
      ale regrade runs/20260101-120000-3f2a-terminal --reload -n 4
    """
    import json

    from ale._run.regrading import regrade
    from ale._run.start import Host
    from ale._store import RunReader
    from ale._store.codec import plain

    made = asyncio.run(
        regrade(
            RunReader(run),
            Host(registry=ctx.obj),
            criteria=[_criterion(each) for each in criteria],
            overrides=overrides,
            reload=reload,
            concurrency=concurrency,
        )
    )
    if as_json:
        click.echo(json.dumps(plain(made.episodes), indent=2, ensure_ascii=False))
    else:
        for line in _lines(made.episodes):
            click.echo(line)
        click.echo(f"stored in {made.path}")
    ctx.exit(UNGRADED if any(each.problem for each in made.episodes) else 0)


def _criterion(text: str) -> "CriterionSpec":
    from ale.runs import parse_choice
    from ale.types import CriterionSpec

    found: dict[str, Any] = parse_choice(text, option="--criterion").plain()
    name = found.pop("type")
    return CriterionSpec(type=str(name), options=found)


def _lines(episodes: Sequence["Regraded"]) -> Iterator[str]:
    from ale.text import counted

    graded = [each for each in episodes if each.problem is None]
    kept = sum(each.state == "kept" for each in graded)
    total = counted(len(episodes), "episode")
    yield f"graded again  {len(graded)} of {total}, {kept} in kept states"
    both = [each for each in graded if each.old is not None]
    for name, rewards in (("old", [e.old for e in both]), ("new", [e.new for e in both])):
        passed = sum(reward == 1 for reward in rewards)
        yield f"{name} success   {passed} of {len(both)}"
    changed = [each for each in graded if each.changed]
    yield f"changed       {len(changed)}"
    for each in changed:
        old = "broken" if each.old is None else f"{each.old:.3g}"
        why = next((score.detail for score in each.scores if score.detail), "").partition("\n")[0]
        yield f"  {each.episode}  {old} -> {each.new:.3g}  {why}".rstrip()
    left = [each for each in episodes if each.problem is not None]
    if left:
        yield f"not graded    {len(left)}"
        yield from (f"  {each.episode}: {each.problem}" for each in left)
