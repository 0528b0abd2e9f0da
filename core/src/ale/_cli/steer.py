"""``ale steer RUN ACTION``."""

import json
from pathlib import Path

import click

from ale._cli.common import RUN
from ale._run.control import ACTIONS, steer
from ale.errors import nearest
from ale.text import counted, table


class _Action(click.Choice[str]):
    """One of the actions; an error has the nearest."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As click does."""
        if value not in ACTIONS and (hint := nearest(value, ACTIONS)):
            self.fail(f"'{value}' is not one of {', '.join(ACTIONS)}; {hint}", param, ctx)
        return super().convert(value, param, ctx)


@click.command("steer")
@click.argument("run", type=RUN)
@click.argument("action", type=_Action(ACTIONS), default="state", metavar="[ACTION]")
@click.argument("to", required=False, metavar="[NUMBER|auto|EPISODE]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: Path, action: str, to: str | None, as_json: bool) -> None:
    """Pause, resume, slow down or end RUN while it runs, from another terminal.

    Without an ACTION, its state is shown, and which episodes run. `pause` starts no further
    episode, `resume` does again; `concurrency NUMBER` sets how many run at the same time,
    and `concurrency auto` lets the run find that number; `cancel
    EPISODE` ends one, which is then broken; `evaluate` evaluates the policy after the step that the
    run is in. `stop-after-step` ends the run when this step is learned and evaluated, `stop`
    finishes the running episodes, as the first Ctrl-C does. Each is an event of the run. `ale run
    --resume` continues a run that was stopped, unpaused and with its own concurrency.

    \b
    Examples:
      ale steer latest
      ale steer latest pause
      ale steer latest cancel 0-fizzbuzz-3
      ale steer runs/20260101-120000-3f2a-quickstart concurrency 4
      ale steer latest concurrency auto
      ale steer latest stop-after-step
    """
    if (action in ("concurrency", "cancel")) != (to is not None):
        raise click.UsageError(
            "'concurrency' needs a NUMBER or auto, 'cancel' an EPISODE, and no other action has "
            "more"
        )
    # Other words for a number are refused with what is expected.
    is_number = action == "concurrency" and to is not None and to.isdecimal()
    state = steer(run, action, int(to) if is_number and to else to)
    if as_json:
        click.echo(json.dumps(state))
        return
    auto = " (auto)" if state["auto"] else ""
    words = [f"{counted(state['running'], 'episode')} running"]
    words += [f"{state['concurrency']} concurrent{auto}"]
    words += ["paused"] if state["paused"] else []
    words += ["stopping: no further episode starts"] if state["stopping"] else []
    words += ["evaluates after this step"] if state["evaluates_after_step"] else []
    words += ["stops after this step"] if state["stops_after_step"] else []
    click.echo(f"{run}: {', '.join(words)}")
    if action == "state" and state["episodes"]:
        rows = [
            (each["id"], each["stage"], f"{each['seconds']:.0f} s") for each in state["episodes"]
        ]
        click.echo(table(("episode", "stage", "for"), rows, right=(2,)))
