"""``ale skills`` as click sees it; its work is imported when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale.commands import COMPONENT, PATH, RUN

if TYPE_CHECKING:
    from ale.runs import Registry

_store = click.option(
    "--store", type=PATH, required=True, metavar="FILE", help="File with the store of skills."
)


@click.group("skills")
def skills() -> None:
    """Skills that agents learn from feedback: list, add, propose, accept, review, retire.

    \b
    Examples:
      ale skills propose runs/agent --store skills.db --llm openai:model=gpt-5,api_key_env=KEY
      ale skills review runs/later --store skills.db
    """


@skills.command("list")
@_store
@click.option("--all", "retired", is_flag=True, help="List retired skills too.")
def list_(store: Path, retired: bool) -> None:
    """List the skills, with the measured worth of each.

    The worth is the mean difference between the rewards with and without the skill, with its 95%
    interval and the number of pairs.

    \b
    Example:
      ale skills list --store skills.db --all
    """
    from ale_middleware.skills.printing import table_of
    from ale_middleware.skills.store import Store

    with Store(store) as opened:
        click.echo(table_of(opened, retired=retired))


@skills.command("add")
@_store
@click.option(
    "--goal",
    default="",
    help="Goal of a task that the skill is for: tasks are matched by its words.",
)
@click.argument("text")
def add(store: Path, goal: str, text: str) -> None:
    """Add a skill that you write.

    \b
    Example:
      ale skills add --store skills.db --goal "Count the lines of a file." "Use wc -l."
    """
    import time

    from ale_middleware.skills.store import Store

    with Store(store, create=True) as opened:
        known = opened.same_as(text)
        added = opened.add(text, goal, at=time.time())
    click.echo(f"{added.id} says the same" if known else added.id)


@skills.command("propose")
@click.argument("runs", nargs=-1, required=True, type=RUN)
@_store
@click.option("--llm", required=True, metavar=COMPONENT, help="Model that proposes skills.")
@click.option(
    "--below", default=0.5, show_default=True, help="Only use episodes with a smaller reward."
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of requests to the model.",
)
@click.option(
    "--details",
    is_flag=True,
    help="Count what criteria say about a score as feedback too, which may give answers away.",
)
@click.pass_obj
def propose(
    registry: "Registry",
    runs: tuple[Path, ...],
    store: Path,
    llm: str,
    below: float,
    most: int,
    details: bool,
) -> None:
    """Ask a model for skills from the episodes of RUNS that ended badly and the feedback on them.

    The model is asked about each episode once; a proposal that says the same as a known skill,
    used or retired, is left out. A proposal is pending until `ale skills review` finds that it
    helps, or `ale skills accept` takes it: it is used only where skills are measured.

    \b
    Example:
      ale skills propose runs/agent --store skills.db --llm lmstudio:model=local-model
    """
    from ale_middleware.skills.running import run_propose

    run_propose(registry, runs, store, llm, below=below, most=most, details=details, say=click.echo)


@skills.command("review")
@click.argument("runs", nargs=-1, required=True, type=RUN)
@_store
@click.option(
    "--pairs",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    help="Pairs after which a skill is retired unless they show that it helps.",
)
def review(runs: tuple[Path, ...], store: Path, pairs: int) -> None:
    """Measure what skills were worth in RUNS; accept proposals that help, retire what does not.

    A pair is the rollouts of a task with the skill and those without it, in one step of a run.

    \b
    Example:
      ale skills review runs/later --store skills.db --pairs 20
    """
    from ale_middleware.skills.printing import reviewed
    from ale_middleware.skills.reviewing import review as judge
    from ale_middleware.skills.store import Store

    with Store(store) as opened:
        click.echo(reviewed(judge(runs, opened, pairs=pairs)))


@skills.command("accept")
@_store
@click.argument("skill")
def accept(store: Path, skill: str) -> None:
    """Use a SKILL that was proposed, though it was not measured.

    \b
    Example:
      ale skills accept --store skills.db 3f2a91c07b
    """
    from ale_middleware.skills.store import Store

    with Store(store) as opened:
        opened.accept(skill, "by hand")


@skills.command("retire")
@_store
@click.argument("skill")
@click.option("--undo", is_flag=True, help="Use a retired skill again.")
def retire(store: Path, skill: str, undo: bool) -> None:
    """Stop using a SKILL, whatever its measured worth.

    \b
    Example:
      ale skills retire --store skills.db 3f2a91c07b
    """
    from ale_middleware.skills.store import Store

    with Store(store) as opened:
        opened.retire(skill, None if undo else "by hand")
