"""Structure a merged tree: pick each part's component and type its options."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from ale._config.model import Evaluation, EvaluationOptions, RunConfig, RunOptions, Selected
from ale._config.source import lay_over, merge, read_source
from ale._registry import Registration, Registry
from ale.errors import InputError, PluginError, Problem
from ale.plugin import ConfigFormat, Converted
from ale.strict import Node, describe, from_plain, nearest, structure

_DEFAULTS: dict[str, Any] = {
    "sandbox": {"type": "auto"},
    "chunker": {"type": "interaction"},
    "credit": {"type": "ipa"},
    "observers": [{"type": "console"}],
}
_OPTIONAL = ("llm", "starts", "trainer")
_PARTS = ("tasks", "sandbox", "llm", "agent", "chunker", "credit", "starts", "trainer")
_SECTIONS = (*_PARTS, "evaluation", "observers", "run")


def load_config(
    path: Path, registry: Registry, overrides: Sequence[str] = (), format: str | None = None
) -> RunConfig:
    """Read and check a config.

    Args:
        format: the name of another one that it is in; default: as its keys say.

    Raises:
        InputError: with every problem of every section.
    """
    said = _in_own_words(read_source(path), registry, format)
    config = structure_config(lay_over(said.root, overrides), registry)
    environ = {name: key.value for name, key in said.environ.items()}
    source = {"file": str(path.resolve()), "format": format} if environ else None
    return attrs.evolve(config, environ=environ, environ_source=source)


def environ_again(source: Mapping[str, Any] | None, registry: Registry) -> Mapping[str, str]:
    """The variables of a stored run's config file; none where it can't be read any more."""
    if source is None:
        return {}
    try:
        root = read_source(Path(source["file"]))
        converted = _in_own_words(root, registry, source["format"])
    except InputError:
        return {}  # the part that needs a variable says that it is not set
    return {name: key.value for name, key in converted.environ.items()}


def _in_own_words(root: Node, registry: Registry, format: str | None) -> Converted:
    """The tree, converted where a package knows its format."""
    known = list(_formats(registry))
    found = [one for one in known if (one.name == format if format else one.reads(root))]
    if not found and format is None:
        return Converted(root=root)
    if len(found) != 1:
        names = " and as ".join(one.name for one in found)
        said = f"can be read as {names}" if found else f"no package reads the format '{format}'"
        raise root.error(said + registry.suspects(), path="--format")
    return found[0].convert(root, lambda kind, name: registry.find(kind, name).probe())


def _formats(registry: Registry) -> Iterator[ConfigFormat]:
    for package, answer in registry.answers("ale_config_formats"):
        if isinstance(answer, Sequence) and all(isinstance(one, ConfigFormat) for one in answer):
            yield from answer
        else:
            error = PluginError(f"expected a list of ConfigFormat, got {answer!r}")
            registry.record_broken_hook(package, "ale_config_formats", error)


def structure_config(node: Node, registry: Registry) -> RunConfig:
    """Check a merged tree. Raises as `load_config`."""
    assert node.mapping is not None
    problems = _Problems()
    problems.found += [_unknown_section(node, key) for key in node.mapping if key not in _SECTIONS]
    node = _over_defaults(node)
    picked: dict[str, Any] = {
        kind: problems.collect(partial(_part, node, kind, registry)) for kind in _PARTS
    }
    observers = problems.collect(lambda: _observers(node, registry)) or ()
    evaluation = problems.collect(partial(_evaluation, node, registry))
    empty = Node({}, node.file, node.line)
    options = problems.collect(lambda: structure(node.get("run") or empty, RunOptions, path="run"))
    problems.found += _unmet_needs(node, picked)
    if problems.found:
        raise InputError(problems.found)
    parts = {kind: part for kind, part in picked.items() if part is not None}
    resolved: dict[str, Any] = {kind: _plain(part) for kind, part in parts.items()}
    resolved["observers"] = [_plain(part) for part in observers]
    if evaluation is not None:
        resolved["evaluation"] = {
            "tasks": _plain(evaluation.tasks),
            **_values(evaluation.options),
        }
    resolved["run"] = _values(options)
    return RunConfig(
        **picked, evaluation=evaluation, observers=observers, run=options, resolved=resolved
    )


def _over_defaults(node: Node) -> Node:
    """Lay what is written over the defaults; a section with nothing in it is not written."""
    assert node.mapping is not None
    written = {key: child for key, child in node.mapping.items() if child.value is not None}
    defaults = from_plain(_DEFAULTS, file=node.file)
    return merge(defaults, Node(written, node.file, node.line))


class _Problems:
    def __init__(self) -> None:
        self.found: list[Problem] = []

    def collect(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except InputError as error:
            self.found += error.problems
            return None


def _unknown_section(node: Node, key: str) -> Problem:
    assert node.mapping is not None
    return node.mapping[key].problem(
        "unknown section",
        path=key,
        expected="one of " + ", ".join(_SECTIONS),
        hint=nearest(key, _SECTIONS),
    )


def _unmet_needs(node: Node, picked: dict[str, Any]) -> list[Problem]:
    return [
        node.problem(
            f"section '{need}' is missing",
            expected=f"{need}: {{type: ...}}, which {kind} '{part.name}' needs",
        )
        for kind, part in picked.items()
        if part is not None
        for need in part.registration.component.needs
        if node.get(need) is None
    ]


def _part(root: Node, kind: str, registry: Registry) -> Selected | None:
    node = root.get(kind)
    if node is None and kind in _OPTIONAL:
        return None
    if node is None:
        names = ", ".join(
            registration.component.name for registration in registry.registrations(kind)
        )
        message = f"section '{kind}' is missing"
        expected = f"{kind}: {{type: ...}}, one of {names or 'none installed'}"
        raise root.error(message, expected=expected)
    return select(node, kind, registry, path=kind)


def _evaluation(root: Node, registry: Registry) -> Evaluation | None:
    node = root.get("evaluation")
    if node is None:
        return None
    if node.mapping is None:
        raise node.error(f"expected a mapping, found {describe(node.value)}", path="evaluation")
    tasks = node.get("tasks")
    if tasks is None:
        said, expected = "'tasks' is missing", "tasks: {type: ...}, those to measure it on"
        raise node.error(said, path="evaluation.tasks", expected=expected)
    rest = {key: child for key, child in node.mapping.items() if key != "tasks"}
    options = structure(Node(rest, node.file, node.line), EvaluationOptions, path="evaluation")
    selected = select(tasks, "tasks", registry, path="evaluation.tasks")
    return Evaluation(tasks=selected, options=options)


def _observers(root: Node, registry: Registry) -> tuple[Selected, ...]:
    node = root.get("observers")
    assert node is not None  # it has a default
    if node.items is None:
        said = f"expected a list, found {describe(node.value)}"
        raise node.error(said, path="observers", hint="observers: [{type: console}]")
    problems = _Problems()
    made = [
        problems.collect(partial(select, item, "observer", registry, path=f"observers[{i}]"))
        for i, item in enumerate(node.items)
    ]
    if problems.found:
        raise InputError(problems.found)
    return tuple(made)


def select(node: Node, kind: str, registry: Registry, *, path: str) -> Selected:
    """The component that a ``{type: ..., option: ...}`` picks, with its options typed.

    Raises:
        InputError: with every problem of this section.
    """
    if node.mapping is None:
        said = f"expected a mapping with a type, found {describe(node.value)}"
        raise node.error(said, path=path, hint="{type: ...}")
    type_ = node.get("type")
    names = [registration.component.name for registration in registry.registrations(kind)]
    if type_ is None or not isinstance(type_.value, str):
        message = "'type' is missing" if type_ is None else "expected text"
        at = node if type_ is None else type_
        raise at.error(message, path=f"{path}.type", expected="one of " + ", ".join(names))
    try:
        automatic = kind == "sandbox" and type_.value == "auto"
        registration = _auto(node, registry) if automatic else registry.find(kind, type_.value)
    except PluginError as error:
        hint = nearest(type_.value, names)
        raise type_.error(str(error), path=f"{path}.type", hint=hint) from None
    rest = {key: child for key, child in node.mapping.items() if key != "type"}
    return Selected(
        registration=registration,
        options=_options(Node(rest, node.file, node.line), registration, path),
    )


def _auto(node: Node, registry: Registry) -> Registration:
    """The strongest sandbox that its probe finds usable here, and that has what it needs."""
    ranked = [
        registration
        for registration in registry.registrations("sandbox")
        if registration.component.priority > 0
    ]
    refused = []
    for registration in sorted(ranked, key=lambda registration: -registration.component.priority):
        lacking = [name for name in registration.component.auto_needs if node.get(name) is None]
        if lacking:
            refused.append(f"{registration.component.name}: sandbox.{lacking[0]} is not given")
            continue
        found = registration.probe()
        if found is None or found.usable:
            return registration
        refused.append(f"{registration.component.name}: {found.reason}")
    raise PluginError("no sandbox is usable here; " + ("; ".join(refused) or "none is installed"))


def _options(node: Node, registration: Registration, path: str) -> Any:
    cls = registration.component.options
    if cls is not None:
        return structure(node, cls, path=path)
    expected = f"no options of {registration.component.name}"
    problems = [
        child.problem("unknown option", path=f"{path}.{key}", expected=expected)
        for key, child in (node.mapping or {}).items()
    ]
    if problems:
        raise InputError(problems)
    return None


def _plain(part: Selected) -> dict[str, Any]:
    return {"type": part.registration.full_name, **_values(part.options)}


def _values(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    values: dict[str, Any] = attrs.asdict(options, value_serializer=_serialize)
    return values


def _serialize(_: Any, __: Any, value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
