"""The command line of `ale validate`; the implementation is imported when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale.commands import COMPONENT, PATH, Starting, overrides_option, started

if TYPE_CHECKING:
    from ale.runs import Registry

INVALID = 1
INTERRUPTED = 130


class _Band(click.ParamType[tuple[float, float]]):
    name = "LOW:HIGH"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """As click does."""
        if isinstance(value, tuple):
            return value
        low, _, high = str(value).partition(":")
        try:
            found = float(low), float(high)
        except ValueError:
            found = (1.0, 0.0)
        if not 0 <= found[0] <= found[1] <= 1:
            self.fail(f"expected two success rates such as 0.1:0.9, found '{value}'", param, ctx)
        return found


@click.command("validate", cls=Starting)
@click.argument("target", type=PATH, metavar="CONFIG|FOLDER")
@click.option(
    "-k",
    "repeats",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Repeats of the solution and of doing nothing.",
)
@click.option("--no-attacks", is_flag=True, help="Don't try to pass the tasks by cheating.")
@click.option(
    "--attempts",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Also let the agent and the model of CONFIG try each task N times.",
)
@click.option("--band", type=_Band(), help="Success rates that the model is to have on each task.")
@click.option(
    "--against",
    metavar=COMPONENT,
    help="Compare the goals with those of another task source: humaneval, or tbp:path=FOLDER.",
)
@click.option("--sandbox", metavar=COMPONENT, help="Sandbox.  [default: CONFIG's, or auto]")
@click.option(
    "-n",
    "--concurrency",
    type=click.IntRange(1),
    help="Maximum number of episodes running at the same time.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Folder for the runs; an unfinished validation in it is continued.  [default: one below "
    "./runs, named after the tasks and options]",
)
@click.option(
    "--badge",
    type=PATH,
    metavar="FILE",
    help="Write which tasks are valid, and what their solutions' passes used, for the task source "
    "`validated`.",
)
@overrides_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def validate(
    ctx: click.Context,
    target: Path,
    repeats: int,
    no_attacks: bool,
    attempts: int,
    band: tuple[float, float] | None,
    against: str | None,
    sandbox: str | None,
    concurrency: int | None,
    out: Path | None,
    badge: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Test the tasks of CONFIG or FOLDER before anything is trained on them.

    In real sandboxes, the reference solution must get 1 and doing nothing 0, every time; neither
    may the tests be passed by stock attacks, nor solution and tests be read. Exit status 1 if a
    task is not valid, or can't be read. Each agent's episodes are a run of its own; the same
    command continues them, and tries again what broke.

    \b
    Examples:
      ale validate tasks/
      ale validate my.yaml --attempts 8 --band 0.1:0.9 --badge validated.json
    """
    from functools import partial

    from ale.text import counted
    from ale_agent_oracle.validate import findings, phases, tables
    from ale_agent_oracle.validate.badge import check_writable, write_badge

    if band is not None and not attempts:
        raise click.UsageError("--band needs --attempts N")
    if badge is not None:
        check_writable(badge)
    registry: Registry = ctx.obj
    tell = partial(click.echo, err=True)
    wanted = phases.Wanted(
        target=target,
        repeats=repeats,
        attacks=not no_attacks,
        attempts=attempts,
        sandbox=sandbox,
        concurrency=concurrency,
        overrides=overrides,
    )
    with phases.said_once():
        validation = phases.plan(wanted, registry, tell)
        others = phases.goals(against, registry) if against else None
        folder = out or Path("runs") / f"validate-{target.absolute().stem}-{validation.digest[:8]}"
        started()
        runs = phases.carry_out(validation, folder, tell)
    if runs is None:
        tell("interrupted; the same command continues")
        ctx.exit(INTERRUPTED)
    found = findings.findings(validation.tasks, runs, band=band, against=others)
    left_out = validation.left_out
    if as_json:
        click.echo(tables.findings_json(found, validation.sandbox, left_out))
    else:
        click.echo(tables.findings_text(found, attacks=not no_attacks))
        if left_out:
            click.echo(f"{counted(len(left_out), 'problem')} of tasks that are left out:")
            click.echo("\n".join(left_out))
        click.echo(f"stored in {folder}")
    if badge is not None:
        valid = {each.task: each.valid for each in found}
        untried = None if no_attacks else {each.task: each.not_tried for each in found}
        solutions = [*runs[phases.SOLUTION].episodes]
        about = (validation.tasks, validation.sandbox, untried)
        passed_by = {each.task: each.passed_by for each in found if each.passed_by}
        write_badge(badge, valid, *about, solutions, passed_by)
    ctx.exit(0 if all(each.valid for each in found) and not left_out else INVALID)
