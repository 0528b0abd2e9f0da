"""The options of ``ale eval``, and the config of `ale` that they make."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.errors import InputError, PluginError, Problem
from ale.runs import Registry, parse_choice, read_sections
from ale.strict import Node, from_plain, nearest_file
from ale_bench.offered import Offered, has_option
from ale_bench.targets import Target

_DEFAULT_LLM = "openai"
_ORIGINS = ("path", "dataset", "sample")
_HOST_ENV = "host_env"
"""Option of a task source whose tasks can read variables of this machine: which of them."""
TEMPERATURE = 0.8
"""Of several samples per problem, as in arXiv:2107.03374 for many; one sample is taken at 0."""


@frozen(kw_only=True)
class Flags:
    """The options of the command line; None for those not given."""

    k: int
    model: str | None
    base_url: str | None
    api_key_env: str | None
    llm: str | None
    """``TYPE[:OPTION=VALUE,...]``."""
    config: Path | None
    """A config of `ale` with a section ``llm``."""
    temperature: float | None
    max_tokens: int | None
    agent: str | None
    sandbox: str | None
    data: Path | None
    dataset: str | None
    """``NAME[:SUBSET]``."""
    sample: bool
    split: str | None
    limit: int | None
    seed: int
    out: Path | None
    """Folder of the run; None for one of its own below ``run.directory``."""


def config_tree(flags: Flags, target: Target, registry: Registry) -> Node:
    """The config that runs a benchmark; each value's file is the option that it is from.

    Raises:
        InputError: the benchmark has no such option, or the model can't be read.
    """
    chosen = target.offered
    benchmark, origin = chosen.benchmark, _origin(target)
    sections = {
        "tasks": _tasks(flags, target),
        "sandbox": _choice(flags.sandbox, benchmark.sandbox, "--sandbox", origin),
        "agent": _choice(flags.agent, benchmark.agent, "--agent", origin),
        "run": Node(
            {
                **{key: _plain(value, origin) for key, value in benchmark.run.items()},
                "name": _plain(target.name, origin),
                "rollouts": _plain(flags.k, "-k"),
                "seed": _plain(flags.seed, "--seed"),
                "directory": _plain(str(flags.out or "runs"), "--out"),
            },
            "ale eval",
        ),
    }
    # An agent that is chosen without a model, such as oracle, needs none.
    if flags.agent is None or any((flags.model, flags.llm, flags.config, flags.base_url)):
        sections["llm"] = _llm(flags, registry)
    return Node({**sections}, "ale eval")


def _choice(given: str | None, declared: str, option: str, origin: str) -> Node:
    where = option if given else origin
    return parse_choice(given or declared, option=where, instead_of=declared)


def _origin(target: Target) -> str:
    """The folder or benchmark that the user gave, for messages."""
    if target.folder is None:
        return f"benchmark {target.offered.benchmark.name}"
    here = Path.cwd()
    folder = target.folder
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _plain(value: Any, origin: str) -> Node:
    return from_plain(value, file=origin)


def _tasks(flags: Flags, target: Target) -> Node:
    chosen = target.offered
    dataset, _, subset = (flags.dataset or "").partition(":")
    given = {
        "path": ("--data", None if flags.data is None else str(flags.data)),
        "dataset": ("--dataset", dataset or None),
        "subset": ("--dataset", subset or None),
        "sample": ("--sample", flags.sample or None),
        "split": ("--split", flags.split),
        "limit": ("--limit", flags.limit or None),
    }
    if target.folder is not None:
        given["path"] = (_origin(target), str(target.folder))
    name, origin = chosen.benchmark.name, _origin(target)
    made: dict[str, Any] = {"type": chosen.source_name, **chosen.benchmark.tasks}
    if target.foreign and chosen.has_option(_HOST_ENV):
        made[_HOST_ENV] = []
    section = {key: _plain(value, origin) for key, value in made.items()}
    problems = []
    for key, (option, value) in given.items():
        if value is None:
            continue
        if not chosen.has_option(key):
            message = f"the benchmark '{name}' has no such option"
            problems.append(Problem(message=message, file=option))
        section[key] = _plain(value, option)
    problems = problems or _without_problems(flags, chosen, section)
    if problems:
        raise InputError(problems)
    return Node({**section}, origin)


def _without_problems(flags: Flags, chosen: Offered, section: Mapping[str, Node]) -> list[Problem]:
    """Is it known that the problems are not there?"""
    wanted = "; ".join(filter(None, [chosen.benchmark.needs, chosen.benchmark.home])) or None
    if flags.data is not None and not flags.data.exists():
        message = f"there is no file or folder {flags.data}"
        hint = nearest_file(flags.data)
        return [Problem(message=message, file="--data", expected=wanted, hint=hint)]
    if chosen.ready or not chosen.benchmark.needs or {*_ORIGINS} & {*section}:
        return []
    options = {"--data PATH": "path", "--dataset NAME": "dataset", "--sample": "sample"}
    others = [option for option, key in options.items() if chosen.has_option(key)]
    message = f"the benchmark '{chosen.benchmark.name}' needs its problems"
    hint = f"they are given by one of {', '.join(others)}" if others else None
    return [Problem(message=message, expected=wanted, hint=hint)]


def _llm(flags: Flags, registry: Registry) -> Node:
    section = _model_section(flags, registry)
    given = {
        "model": ("--model", flags.model),
        "base_url": ("--base-url", flags.base_url),
        "api_key_env": ("--api-key-env", flags.api_key_env),
        "temperature": ("--temperature", flags.temperature),
        "max_tokens": ("--max-tokens", flags.max_tokens),
    }
    options = {**(section.mapping or {})}
    for key, (option, value) in given.items():
        if value is not None:
            options[key] = _plain(value, option)
    if "temperature" not in options and _has_temperature(section, registry):
        options["temperature"] = _plain(0.0 if flags.k == 1 else TEMPERATURE, "--temperature")
    return Node(options, section.file, section.line)


def _model_section(flags: Flags, registry: Registry) -> Node:
    if flags.config is None:
        return parse_choice(flags.llm or _DEFAULT_LLM, option="--llm" if flags.llm else "--model")
    root = read_sections(
        flags.config,
        registry,
        command="ale eval",
        uses=("llm",),
        others=partial(print, file=sys.stderr),
    )
    return root.section("llm")


def check_model(flags: Flags, tree: Node) -> None:
    """Check that a model was chosen where the agent needs one.

    Raises:
        InputError: with the ways to choose one.
    """
    section = tree.get("llm")
    if section is None or flags.llm is not None or flags.config is not None:
        return
    kind, model = section.get("type"), section.get("model")
    if kind is not None and kind.value == _DEFAULT_LLM and model is None:
        raise InputError.of(
            "no model is given",
            expected=f"--model NAME of the type '{_DEFAULT_LLM}', --llm TYPE, or --config FILE",
            hint="`--agent oracle` needs none: it does what the tasks' reference solutions do",
        )


def _has_temperature(section: Node, registry: Registry) -> bool:
    kind = section.get("type")
    try:
        found = registry.find("llm", str(None if kind is None else kind.value))
    except PluginError:
        return False  # reported with the whole config
    return has_option(found.component, "temperature")
