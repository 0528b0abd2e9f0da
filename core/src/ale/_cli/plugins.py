"""``ale plugins [KIND [NAME]]``."""

from typing import TYPE_CHECKING

import click

from ale._cli.common import check_kind, registry_with_commands
from ale.text import shorten, table

if TYPE_CHECKING:
    from ale._registry import FailedPackage, Registration, Registry


@click.command("plugins")
@click.argument("kind", required=False, metavar="[KIND|PACKAGE]")
@click.argument("name", required=False)
@click.option("-v", "--verbose", is_flag=True, help="Print the tracebacks of failed packages.")
@click.pass_context
def command(ctx: click.Context, kind: str | None, name: str | None, verbose: bool) -> None:
    """List what a config can choose from, or show the options of one component.

    KIND is a section of the config, such as sandbox or credit; NAME is a `type` of this section.
    For the name of a PACKAGE that failed to load, its traceback is printed.

    \b
    Examples:
      ale plugins
      ale plugins credit
      ale plugins credit ipa
    """
    from ale._registry import KINDS

    registry = registry_with_commands(ctx)
    for each in KINDS:
        registry.registrations(each)  # so that packages with broken hooks are known
    failed = [broken for broken in registry.failed if broken.distribution == kind]
    if failed:
        click.echo("\n".join(_failure(broken, verbose=True) for broken in failed), nl=False)
        return
    check_kind(kind)
    if kind is not None and name is not None:
        from ale.runs import find_component  # here: the list does not need it

        click.echo(_one(find_component(registry, kind, name, option=kind)))
        return
    kinds = [kind] if kind else list(KINDS)
    found = [each for one in kinds for each in registry.registrations(one)]
    rows = [
        [each.kind, each.component.name, each.distribution, each.component.summary]
        for each in found
    ]
    click.echo(table(["kind", "name", "package", "summary"], rows))
    problems = [_duplicates(registry, each) for each in kinds]
    problems += [_failure(broken, verbose=verbose) for broken in registry.failed]
    if any(problems):
        click.echo("\n" + "".join(problems), nl=False)


def _duplicates(registry: "Registry", kind: str) -> str:
    text = ""
    names = registry.names(kind)
    for name in sorted({name for name in names if names.count(name) > 1}):
        owners = [o.full_name for o in registry.registrations(kind) if o.component.name == name]
        text += f"{kind} '{name}' is registered twice; write {' or '.join(owners)}\n"
    return text


def _failure(broken: "FailedPackage", *, verbose: bool) -> str:
    line = f"{broken.distribution} (entry point {broken.entry_point}) {broken.message}\n"
    return line + broken.traceback if verbose else line


def _one(registration: "Registration") -> str:
    component = registration.component
    lines = [
        f"{registration.kind} {component.name}: {component.summary}",
        f"from {registration.distribution} {registration.version}",
    ]
    if component.needs:
        sections = "section" if len(component.needs) == 1 else "sections"
        lines.append(f"needs the {sections} {', '.join(component.needs)}")
    rows = _options(component.options)
    if rows:
        lines += ["", table(["option", "type", "default", "description"], rows)]
    else:
        lines.append("no options")
    return "\n".join(lines)


def _options(cls: type | None) -> list[list[str]]:
    if cls is None:
        return []
    from ale._config.describe import describe_options

    return [
        [option.name, option.type, shorten(option.default, 40), option.doc]
        for option in describe_options(cls)
    ]
