"""The command line of `ale audit`; the implementation is imported when it runs."""

from pathlib import Path
from typing import Any

import click

from ale.commands import run_argument


class Head(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """``NUMBER:SHA256``, as `ale audit head` prints it."""

    name = "head"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, str]:
        """Number and hash."""
        if isinstance(value, tuple):
            return value
        number, colon, sha256 = value.partition(":")
        if not (colon and number.isdecimal()):
            self.fail(f"expected NUMBER:SHA256, found '{value}'", param, ctx)
        return int(number), sha256.lower()


@click.group("audit")
def audit() -> None:
    """Check that nobody has changed a stored run, by the log that the observer `audit` keeps.

    A run has this log with `observers: [{type: audit}]`: each line has the hash of the one before.

    \b
    Examples:
      ale audit verify runs/20260101-120000-3f2a-quickstart
      ale audit head runs/20260101-120000-3f2a-quickstart
    """


@audit.command("verify")
@run_argument
@click.option(
    "--head",
    type=Head(),
    metavar="NUMBER:SHA256",
    help="What `ale audit head` printed earlier, kept elsewhere.",
)
def verify(run: Path, head: tuple[int, str] | None) -> None:
    """Check the audit log of RUN, and RUN against it; name each missing, changed or moved line.

    Somebody who can write to the run directory can write the whole log anew. Only --head, kept in a
    place that they can't write to, shows that.

    \b
    Examples:
      ale audit verify runs/20260101-120000-3f2a-quickstart
      ale audit verify runs/20260101-120000-3f2a-quickstart --head 412:9f86d081...
    """
    from ale_observe_audit.verifying import verify as verified

    for line in verified(run, head):
        click.echo(line)


@audit.command("head")
@run_argument
def head(run: Path) -> None:
    """Print the number and the hash of the last line of RUN's audit log.

    Keep them in another place: `ale audit verify RUN --head NUMBER:HASH` then shows that nothing up
    to this line was changed.

    \b
    Example:
      ale audit head runs/20260101-120000-3f2a-quickstart
    """
    from ale_observe_audit.verifying import head_of

    number, sha256 = head_of(run)
    click.echo(f"{number}:{sha256}")
