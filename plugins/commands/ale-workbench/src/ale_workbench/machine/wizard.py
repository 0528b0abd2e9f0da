"""Asks, or takes what is recommended, and writes a config that `ale check` accepts."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import yaml
from attrs import evolve, frozen

from ale.errors import InputError, Problem
from ale.files import store_errors
from ale.runs import Registry, check_config, find_component
from ale_workbench.machine.servers import Server, answering, local_addresses, models_at

_OTHER = "another server"
_EXAMPLE = """\
# An example: replace it with your own tasks.
id: hello
goal: Write the word hello into the file hello.txt.
success_criteria:
  - {type: file_contains, path: hello.txt, text: hello}
solution: [echo hello > hello.txt]
"""
_HEAD = """\
# Written by `ale init` for what was found on this machine. `ale check` prints all options,
# `ale plugins` what else is installed.
"""


@frozen(kw_only=True)
class Given:
    """What the options of ``ale init`` say; None is asked for, or recommended."""

    tasks: str | None = None
    sandbox: str | None = None
    llm: str | None = None
    base_url: str | None = None
    model: str | None = None
    agent: str | None = None
    rollouts: int | None = None


def run(path: Path, given: Given, registry: Registry, *, asks: bool) -> None:
    """Write a config.

    Raises:
        InputError: the file exists, nothing is there to be recommended, or what was chosen does not
            fit together; nothing is written then.
        StoreError: the config or the example can't be written.
    """
    if path.exists():
        raise InputError.of("it exists already and is not changed", file=str(path))
    if asks and not sys.stdin.isatty():
        message = "there is no terminal to ask at"
        raise InputError.of(message, path="--yes", expected="--yes and options")
    sections = _chosen(_Asking(asks), given, registry)
    folder = path.parent / Path(sections["tasks"]["path"]).expanduser()
    example = None if folder.exists() else folder / "hello.yaml"
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        if example is not None:
            with store_errors(example):
                folder.mkdir(parents=True)
                example.write_text(_EXAMPLE, encoding="utf-8")
        with store_errors(path):
            _write(path, sections, registry)
    except BaseException:
        _remove(example, missing)
        raise
    for written in (example, path):
        if written is not None:
            click.echo(f"wrote {written}")
    typed = shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))
    click.echo(f"\nNext:\n  ale check {typed}\n  ale run {typed}")


class _Asking:
    """Questions at the terminal, or none."""

    def __init__(self, asks: bool) -> None:
        self.asks = asks

    def text(self, question: str, recommended: str) -> str:
        """A text."""
        return str(click.prompt(question, default=recommended)) if self.asks else recommended

    def number(self, question: str, recommended: int) -> int:
        """A number of at least 1."""
        if not self.asks:
            return recommended
        return int(click.prompt(question, type=click.IntRange(1), default=recommended))

    def one_of(self, question: str, names: Sequence[tuple[str, str]]) -> str:
        """One of these names, shown with why; the first is recommended."""
        if not self.asks or len(names) == 1:
            return names[0][0]
        click.echo(f"\n{question}")
        for number, (name, why) in enumerate(names, 1):
            click.echo(f"  {number}. {name:<16} {why}".rstrip())
        chosen = click.prompt("number", type=click.IntRange(1, len(names)), default=1)
        return names[chosen - 1][0]


def _chosen(asking: _Asking, given: Given, registry: Registry) -> dict[str, dict[str, Any]]:
    for kind, name in {"sandbox": given.sandbox, "llm": given.llm, "agent": given.agent}.items():
        if name is not None and (kind, name) != ("sandbox", "auto"):
            find_component(registry, kind, name, option=f"--{kind}")
    tasks = given.tasks or asking.text("Folder of tasks", "tasks")
    sandbox = given.sandbox or asking.one_of("Where do commands run?", _sandboxes(registry))
    llm = {"llm": _model(asking, given, registry)} if _needs_model(given, registry) else {}
    agent = given.agent or asking.one_of("Which agent?", _agents(registry))
    rollouts = given.rollouts or asking.number("Attempts at each task", 4)
    return {
        "tasks": {"type": "tbp", "path": tasks},
        "sandbox": {"type": sandbox},
        **llm,
        "agent": {"type": agent},
        "run": {"rollouts": rollouts},
    }


def _needs_model(given: Given, registry: Registry) -> bool:
    """Whether a model is wanted: agents such as ``oracle`` run without one."""
    if given.agent is None or given.llm is not None or given.base_url is not None:
        return True
    return "llm" in registry.find("agent", given.agent).component.needs


def _sandboxes(registry: Registry) -> list[tuple[str, str]]:
    """Those that are usable here, as `ale doctor` says."""
    made = [("auto", "the best that is usable here")]
    for registration in registry.registrations("sandbox"):
        probe = registration.probe()
        if probe is None or probe.usable:
            why = registration.component.summary if probe is None else probe.reason
            made.append((registration.component.name, why))
    return made


def _agents(registry: Registry) -> list[tuple[str, str]]:
    found = [
        (registration.component.name, registration.component.summary)
        for registration in registry.registrations("agent")
        if "llm" in registration.component.needs
    ]
    if not found:
        expected = "a package such as ale-agent-iflow"
        raise InputError.of("no agent is installed", expected=expected)
    return sorted(found, key=lambda each: each[0] != "iflow")


def _model(asking: _Asking, given: Given, registry: Registry) -> dict[str, Any]:
    if given.llm is not None or given.base_url is not None:
        return _given_model(asking, given, registry)
    servers = answering(registry)
    names = [(f"{each.llm} {each.base_url}", f"has {each.models[0]}") for each in servers]
    if not names and not asking.asks:
        raise _no_server(registry)
    if asking.asks:
        names.append((_OTHER, "with the API of OpenAI"))
    picked = asking.one_of("Which model server?", names)
    if picked == _OTHER:
        url = asking.text("URL of the model server, up to /v1", "http://127.0.0.1:8000/v1")
        return _section(asking, given, Server(llm="openai", base_url=url, models=models_at(url)))
    server = next(each for each in servers if f"{each.llm} {each.base_url}" == picked)
    return _section(asking, given, server)


def _given_model(asking: _Asking, given: Given, registry: Registry) -> dict[str, Any]:
    llm = given.llm or "openai"
    url = given.base_url or dict(local_addresses(registry)).get(llm, "")
    models = models_at(url) if url and given.model is None else ()
    made = _section(asking, given, Server(llm=llm, base_url=url, models=models))
    return made if given.base_url else {k: v for k, v in made.items() if k != "base_url"}


def _section(asking: _Asking, given: Given, server: Server) -> dict[str, Any]:
    model = given.model
    if model is None and server.models:
        model = asking.one_of("Which model?", [(name, "") for name in server.models])
    if model is None and asking.asks:
        model = asking.text("Name of the model", "default")
    if model is None:
        where = server.base_url or server.llm
        message = f"{where} lists no models, so there is none to take"
        raise InputError.of(message, path="--model", expected="its name")
    return {"type": server.llm, "base_url": server.base_url, "model": model}


def _no_server(registry: Registry) -> InputError:
    asked = ", ".join(url for _, url in local_addresses(registry)) or "no address"
    return InputError.of(
        f"no model server answers on this machine; asked: {asked}",
        path="--llm",
        expected="--llm NAME --model NAME, such as --llm openai --base-url URL --model M",
    )


def _write(path: Path, sections: dict[str, dict[str, Any]], registry: Registry) -> None:
    """Beside its place first: a config that is not valid is never there."""
    lines = (
        f"{name}: {yaml.safe_dump(options, default_flow_style=True, sort_keys=False, width=1000)}"
        for name, options in sections.items()
    )
    beside = path.with_name(f".{path.name}.{os.getpid()}.yaml")
    try:
        beside.write_text(_HEAD + "".join(lines), encoding="utf-8")
        _check(beside, registry)
        os.link(beside, path)  # unlike a rename, never over another file
    except FileExistsError:
        raise InputError.of("it exists already and is not changed", file=str(path)) from None
    finally:
        beside.unlink(missing_ok=True)


def _check(path: Path, registry: Registry) -> None:
    """Without this file in its errors, since it is removed; those of tasks name theirs."""
    try:
        check_config(path, registry)
    except InputError as error:
        raise InputError([_elsewhere(each, path) for each in error.problems]) from None


def _elsewhere(problem: Problem, path: Path) -> Problem:
    return evolve(problem, file=None, line=None) if problem.file == str(path) else problem


def _remove(example: Path | None, folders: Sequence[Path]) -> None:
    """The example, and the folders that were made for it, innermost first."""
    with suppress(OSError):  # what could not be made
        if example is not None:
            example.unlink(missing_ok=True)
        for folder in folders:
            folder.rmdir()
