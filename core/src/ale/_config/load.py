"""Structure a merged tree: select each part's component and structure its options."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from ale._config.auto import choose_sandbox, option_names
from ale._config.environment import parse_environment
from ale._config.formats import convert
from ale._config.model import (
    PARTS,
    AutoChoice,
    Evaluation,
    EvaluationOptions,
    LaunchOptions,
    RunConfig,
    RunOptions,
    SandboxRequirements,
    Selected,
)
from ale._config.plugin_files import KEY as PLUGINS
from ale._config.plugin_files import load_plugin_files
from ale._config.source import merge, parse_overrides, read_source
from ale._registry import Registration, Registry, how_to_install, not_installed
from ale.errors import InputError, PluginError, Problem
from ale.strict import Node, describe, from_plain, nearest, structure
from ale.strict.structuring import Problems

_DEFAULTS: dict[str, Any] = {
    "sandbox": {"type": "auto"},
    "executor": {"type": "local"},
    "chunker": {"type": "interaction"},
    "credit": {"type": "ipa"},
    "observers": [{"type": "console"}],
}
_NOT_HERE = {"chunker", "credit", "observers"}
"""Sections whose defaults the core does not have itself."""
_OPTIONAL = ("llm", "starts", "trainer", "launch")
_PARTS = (*PARTS, "launch")
SECTIONS = (*_PARTS, "middleware", "scorers", "evaluation", "observers", "run", PLUGINS)
_RUN = [option.name for option in attrs.fields(RunOptions)]
_UNKNOWN = "unknown option"
_COMMON: dict[str, type] = {"sandbox": SandboxRequirements, "launch": LaunchOptions}
"""Options of a section that its every type has."""
_ALIKE = 0.75
"""Similarity of two names, from 0 to 1, from which one may be a misspelling of the other."""
_KEYS = 3
"""How many keys are shown for an option of the command line that does not exist."""


def keys_near(option: str, own: Iterable[str], registry: Registry) -> list[str]:
    """Keys of the config that an unknown option may mean; none if an own option is as near.

    Args:
        option: as it was typed: ``--rollout``, ``--credit.gamma``.
        own: the command's options.
    """
    from difflib import SequenceMatcher, get_close_matches

    typed = option.lstrip("-").replace("-", "_")
    known = _option_keys(registry)
    if typed in {key for keys in known.values() for key in keys}:
        return [typed]
    options = [each[2:].replace("-", "_") for each in own if each.startswith("--")]
    near = get_close_matches(typed, known, n=1, cutoff=_ALIKE)
    alike = [SequenceMatcher(None, each, typed).ratio() for each in (*near, *options)]
    return known[near[0]][:_KEYS] if near and alike[0] > max(alike[1:], default=0) else []


def _option_keys(registry: Registry) -> dict[str, list[str]]:
    """Keys of a config by their last part: ``gamma``: ``[credit.gamma]``.

    The section ``run`` comes first and alone; a section's own name stands for its type.
    """
    found = {name: [f"run.{name}"] for name in _RUN}
    for section in _PARTS:
        found.setdefault(section, []).append(f"{section}.type")
        names = {name for each in registry.registrations(section) for name in _options_of(each)}
        for name in names - {*_RUN}:
            found.setdefault(name, []).append(f"{section}.{name}")
    return found


def _options_of(registration: Registration) -> list[str]:
    """The names of a component's options; none if they can't be imported."""
    try:
        options = registration.component.options
    except PluginError:
        return []
    return [] if options is None else [option.name for option in attrs.fields(options)]


def load_config(
    path: str | os.PathLike[str],
    registry: Registry,
    overrides: Sequence[str] = (),
    format: str | None = None,
) -> RunConfig:
    """Read and check a config, with the environment's variables and these overrides over it.

    Args:
        path: of the YAML file.
        registry: the components to choose from; plugin files of the config are added to it.
        overrides: ``key=value``, as for ``--set``.
        format: the name of the file's format; default: detected from its keys.

    Raises:
        InputError: with every problem of every section.
    """
    path = Path(path)
    return load_tree(read_source(path), parse_overrides(overrides), registry, format, path)


def load_tree(
    root: Node,
    overrides: Node,
    registry: Registry,
    format: str | None = None,
    path: Path | None = None,
    then: Callable[[Node], Node] = lambda merged: merged,
) -> RunConfig:
    """Check a config that is read already, with the environment's variables and overrides over it.

    Args:
        path: of its file, if it has one.
        then: is given the merged tree, and returns the one to check.

    Raises:
        InputError: as `load_config`.
    """
    changed = merge(parse_environment(os.environ, SECTIONS), overrides)
    converted = convert(root, changed, registry, format)
    config = structure_config(then(converted.root), registry, hint=converted.hint)
    environ = {name: key.value for name, key in converted.environ.items()}
    source = {"file": str(path.resolve()), "format": format} if environ and path else None
    return attrs.evolve(config, environ=environ, environ_source=source)


def reload_environ(source: Mapping[str, Any] | None, registry: Registry) -> Mapping[str, str]:
    """The variables of a stored run's config file; none where it can't be read any more.

    Args:
        source: `RunConfig.environ_source` of the stored run.
    """
    if source is None:
        return {}
    try:
        root = read_source(Path(source["file"]))
        converted = convert(root, Node({}), registry, source["format"])
    except InputError:
        return {}  # the part that needs a variable says that it is not set
    return {name: key.value for name, key in converted.environ.items()}


def structure_config(node: Node, registry: Registry, *, hint: str | None = None) -> RunConfig:
    """Check a merged tree. Raises as `load_config`.

    Args:
        hint: what to do where a section is missing.
    """
    assert node.mapping is not None
    plugins = load_plugin_files(node, registry)
    problems = Problems()
    problems.found += [unknown_section(node, key) for key in node.mapping if key not in SECTIONS]
    node = _with_defaults(node, registry)
    picked: dict[str, Any] = {
        kind: problems.collect(partial(_part, node, kind, registry, hint)) for kind in _PARTS
    }
    require = problems.collect(lambda: required_isolation(node.get("sandbox"))) or ()
    launching = problems.collect(lambda: _common(node.get("launch"), "launch"))
    middleware = problems.collect(lambda: _several(node, "middleware", registry)) or ()
    scorers = problems.collect(lambda: _several(node, "scorers", registry)) or ()
    observers = problems.collect(lambda: _several(node, "observers", registry)) or ()
    evaluation = problems.collect(partial(_evaluation, node, registry))
    empty = Node({}, node.file, node.line)
    options = problems.collect(lambda: structure(node.get("run") or empty, RunOptions, path="run"))
    problems.found += _unmet_needs(node, picked)
    problems.raise_all()
    parts = {kind: part for kind, part in picked.items() if part is not None}
    resolved: dict[str, Any] = {kind: part_values(part) for kind, part in parts.items()}
    resolved |= {"middleware": [part_values(part) for part in middleware]} if middleware else {}
    resolved |= {"scorers": [part_values(part) for part in scorers]} if scorers else {}
    resolved["observers"] = [part_values(part) for part in observers]
    if evaluation is not None:
        resolved["evaluation"] = {
            "tasks": part_values(evaluation.tasks),
            **_values(evaluation.options),
        }
    resolved["run"] = _values(options)
    resolved["sandbox"] |= {"require": list(require)} if require else {}
    resolved |= {"launch": {**resolved["launch"], **_values(launching)}} if picked["launch"] else {}
    resolved |= {PLUGINS: list(plugins)} if plugins else {}
    return RunConfig(
        **picked,
        evaluation=evaluation,
        middleware=middleware,
        scorers=scorers,
        observers=observers,
        run=options,
        resolved=resolved,
        require=require,
        launching=launching,
        plugins=plugins,
        source=node,
    )


def required_isolation(sandbox: Node | None) -> tuple[str, ...]:
    """The isolation that the section ``sandbox`` requires."""
    required: tuple[str, ...] = _common(sandbox, "sandbox").require
    return required


def _handled(kind: str) -> tuple[str, ...]:
    """Keys of a section that are no options of its component."""
    common = _COMMON.get(kind)
    return ("type", *(() if common is None else (each.name for each in attrs.fields(common))))


def _common(section: Node | None, kind: str) -> Any:
    """The options that every type of a section has; defaults where it is missing."""
    entries = {} if section is None else section.mapping or {}
    given = {key: child for key, child in entries.items() if key in _handled(kind)[1:]}
    at = section or Node({})
    return structure(Node(given, at.file, at.line), _COMMON[kind], path=kind)


def _with_defaults(node: Node, registry: Registry) -> Node:
    """Merge the config over the defaults; an empty section counts as missing.

    A run needs no display, and without a trainer or scorers no chunker and no credit scheme: where
    the packages of these defaults are not installed, it has none.
    """
    assert node.mapping is not None
    written = {key: child for key, child in node.mapping.items() if child.value is not None}
    launch = {"launch": {"type": "local"}} if "launch" in written else {}
    credits = not written.keys().isdisjoint({"trainer", "scorers"})
    needed = _NOT_HERE - {"observers"} if credits else set()
    chosen = {
        key: value
        for key, value in _DEFAULTS.items()
        if key not in _NOT_HERE or key in written or key in needed or _has(registry, key, value)
    }
    defaults = from_plain({**chosen, **launch}, file=node.file)
    return merge(defaults, Node(written, node.file, node.line))


def _has(registry: Registry, section: str, default: Any) -> bool:
    """Is the default of a section installed?"""
    kind, part = ("observer", default[0]) if section == "observers" else (section, default)
    return part["type"] in registry.names(kind)


def unknown_section(node: Node, key: str) -> Problem:
    """The problem of a section that no config has."""
    assert node.mapping is not None
    return node.mapping[key].problem(
        "unknown section",
        path=key,
        expected="one of " + ", ".join(SECTIONS),
        hint=nearest(key, SECTIONS) or (f"did you mean 'run.{key}'?" if key in _RUN else None),
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


def _part(root: Node, kind: str, registry: Registry, hint: str | None) -> Selected | None:
    node = root.get(kind)
    if node is None and kind in (*_OPTIONAL, *_NOT_HERE):
        return None
    if node is None:
        names = ", ".join(registry.names(kind))
        message = f"section '{kind}' is missing"
        expected = f"{kind}: {{type: ...}}, one of {names or 'none installed'}"
        raise root.error(message, expected=expected, hint=hint)
    return select(node, kind, registry, path=kind)


def _evaluation(root: Node, registry: Registry) -> Evaluation | None:
    node = root.get("evaluation")
    if node is None:
        return None
    if node.mapping is None:
        raise node.error(f"expected a mapping, found {describe(node.value)}", path="evaluation")
    problems = Problems()
    entries = {key: child for key, child in node.mapping.items() if key != "tasks"}
    rest = Node(entries, node.file, node.line)
    options = problems.collect(partial(_evaluation_options, rest))
    selected = problems.collect(partial(_held_out, node, registry))
    problems.raise_all()
    return Evaluation(tasks=selected, options=options)


def _evaluation_options(node: Node) -> EvaluationOptions:
    try:
        return structure(node, EvaluationOptions, path="evaluation")
    except InputError as error:
        raise InputError([_with_hint(each, ("tasks",)) for each in error.problems]) from None


def _held_out(evaluation: Node, registry: Registry) -> Selected:
    tasks = evaluation.get("tasks")
    if tasks is None:
        message, expected = "'tasks' is missing", "tasks: {type: ...}, the held-out tasks"
        raise evaluation.error(message, path="evaluation.tasks", expected=expected)
    return select(tasks, "tasks", registry, path="evaluation.tasks")


_LISTED = {
    "middleware": ("middleware", "skills"),
    "scorers": ("scorer", "rules"),
    "observers": ("observer", "console"),
}
"""Sections that are lists: the kind of each item, and an example of a type."""


def _several(root: Node, section: str, registry: Registry) -> tuple[Selected, ...]:
    kind, example = _LISTED[section]
    node = root.get(section)
    if node is None:
        return ()
    if node.items is None:
        message = f"expected a list, found {describe(node.value)}"
        raise node.error(message, path=section, hint=f"{section}: [{{type: {example}}}]")
    problems = Problems()
    made = [
        problems.collect(partial(select, item, kind, registry, path=f"{section}[{i}]"))
        for i, item in enumerate(node.items)
    ]
    problems.raise_all()
    return tuple(made)


def select(node: Node, kind: str, registry: Registry, *, path: str) -> Selected:
    """The component that ``{type: NAME, option: value}`` selects, with its options structured.

    Raises:
        InputError: with every problem of this section.
    """
    if node.mapping is None:
        message = f"expected a mapping with a type, found {describe(node.value)}"
        raise node.error(message, path=path, hint=_as_mapping(node, path))
    type_ = node.get("type")
    names = registry.names(kind)
    if kind == "sandbox":
        names.append("auto")
    if type_ is None or not isinstance(type_.value, str):
        at, message = node, "'type' is missing"
        if type_ is not None:
            at, message = type_, f"expected a name, found {describe(type_.value)}"
        wrong = [key for key in node.mapping if type_ is None and nearest(key, ("type",))]
        hint = f"did you mean 'type' instead of '{wrong[0]}'?" if wrong else None
        expected = "one of " + ", ".join(names)
        raise at.error(message, path=f"{path}.type", expected=expected, hint=hint)
    handled = _handled(kind)
    rest = {key: child for key, child in node.mapping.items() if key not in handled}
    options = Node(rest, node.file, node.line)
    auto: AutoChoice | None = None
    try:
        if kind == "sandbox" and type_.value == "auto":
            registration, auto = choose_sandbox(
                registry,
                given=[key for key, child in rest.items() if child.new_type is None],
                require=required_isolation(node),
                options_of=lambda candidate: _options(
                    _split(options, candidate)[0], candidate, path, registry
                ),
            )
        else:
            registration = registry.find(kind, type_.value)
    except PluginError as error:
        hint = None if type_.value in names else _remedy(kind, type_.value, names)
        raise type_.error(str(error), path=f"{path}.type", hint=hint) from None
    try:
        own, lacking = _split(options, registration)
        made = _options(own, registration, path, registry)
    except PluginError as error:
        message = f"the options of {registration.full_name} can't be read: {error}"
        raise type_.error(message, path=f"{path}.type") from error
    dropped = _dropped(lacking, registration, path)
    return Selected(registration=registration, options=made, auto=auto, dropped=dropped)


def _remedy(kind: str, name: str, names: Sequence[str]) -> str | None:
    """A hint for a missing component: the package that has it, or the nearest name."""
    return how_to_install(kind, name) or nearest(name, names)


def _as_mapping(node: Node, path: str) -> str:
    """How a component is selected, with the name that was written as plain text."""
    name = node.value if isinstance(node.value, str) else "..."
    return f"{path.rpartition('.')[2]}: {{type: {name}}}"


def _split(options: Node, registration: Registration) -> tuple[Node, dict[str, Node]]:
    """The options of this component, and the options of an earlier ``type`` to drop."""
    known = option_names(registration)
    entries = options.mapping or {}
    lacking = {
        key: child
        for key, child in entries.items()
        if child.new_type is not None and (key not in known or child.new_type.whole_section)
    }
    own = {key: child for key, child in entries.items() if key not in lacking}
    return Node(own, options.file, options.line), lacking


def _dropped(lacking: Mapping[str, Node], registration: Registration, path: str) -> str | None:
    """``--set sandbox.type=podman: dropped sandbox.a, sandbox.b, which podman does not have``."""
    new_type = next((child.new_type for child in lacking.values()), None)
    if new_type is None:
        return None
    place = f"{new_type.file} " if new_type.line is None else f"{new_type.file}:{new_type.line}: "
    names = ", ".join(f"{path}.{key}" for key in lacking)
    if new_type.whole_section:
        return f"{place}{path}={{type: {new_type.value}, ...}}: dropped {names}"
    name = registration.component.name
    return f"{place}{path}.type={new_type.value}: dropped {names}, which {name} does not have"


def _options(node: Node, registration: Registration, path: str, registry: Registry) -> Any:
    cls = registration.component.options
    problems, inner = Problems(), Problems()
    made = None
    if cls is None:
        expected = f"no options of {registration.component.name}"
        problems.found += [
            child.problem(_UNKNOWN, path=f"{path}.{key}", expected=expected)
            for key, child in (node.mapping or {}).items()
        ]
    else:
        chosen = _with_components(node, cls, registry, path, inner)
        made = problems.collect(lambda: structure(chosen, cls, path=path))
    hinted = [_with_hint(each, _handled(registration.kind)) for each in problems.found]
    problems.found = [_with_owners(each, registration.kind, registry) for each in hinted]
    problems.found += inner.found
    problems.raise_all()
    return made


def _with_components(
    node: Node, cls: type, registry: Registry, path: str, problems: Problems
) -> Node:
    """The options with what each of them selects that is a component, as a `Selected`."""
    entries = dict(node.mapping or {})
    for field in attrs.fields(cls):
        kind = field.metadata.get("component")
        child = entries.get(field.name)
        if child is None and isinstance(field.default, str):
            child = Node(field.default, node.file, node.line)
        if kind is None or child is None:
            continue
        if child.value is None and field.default is None:
            continue  # as the manifest has an option that was left out
        chosen: Any = problems.collect(
            partial(_component, child, field.metadata, registry, path=f"{path}.{field.name}")
        )
        entries[field.name] = Node(chosen, child.file, child.line)
    return Node(entries, node.file, node.line)


def _component(
    child: Node, metadata: Mapping[Any, Any], registry: Registry, *, path: str
) -> Selected:
    """The component that ``NAME`` or ``{type: NAME, option: value}`` selects as an option."""
    if isinstance(child.value, str):
        try:
            named = Node({"type": child}, child.file, child.line)
            return select(named, metadata["component"], registry, path=path)
        except InputError as error:  # the name itself is what stands there
            problems = [
                attrs.evolve(each, path=path) if each.path == f"{path}.type" else each
                for each in error.problems
            ]
            raise InputError(problems) from None
    entries = dict(child.mapping or {})
    spellings = [key for key in ("type", metadata["named_by"]) if key in entries]
    if len(set(spellings)) > 1:
        message = f"'{spellings[1]}' is another word for '{spellings[0]}'"
        raise entries[spellings[1]].error(message, path=f"{path}.{spellings[1]}", hint="keep one")
    if spellings:
        entries["type"] = entries.pop(spellings[0])
    elif child.replaced_text is not None:
        entries["type"] = child.replaced_text
    given = child.value if child.mapping is None else entries
    return select(
        attrs.evolve(child, value=given, replaced_text=None),
        metadata["component"],
        registry,
        path=path,
    )


def _with_owners(problem: Problem, kind: str, registry: Registry) -> Problem:
    """The problem of an unknown option that other components of the kind have."""
    key = (problem.path or "").rpartition(".")[2]
    owners = [
        each.component.name for each in registry.registrations(kind) if key in option_names(each)
    ]
    if problem.message != _UNKNOWN:
        return problem
    if not owners:
        missing = [] if problem.hint or kind != "sandbox" else not_installed(kind, registry)
        return attrs.evolve(problem, hint=_others(missing)) if missing else problem
    return attrs.evolve(problem, hint=f"an option of {', '.join(owners)}")


def _others(missing: Sequence[str]) -> str:
    return f"none that is installed has it; there are also {', '.join(missing)}"


def _with_hint(problem: Problem, handled: Sequence[str]) -> Problem:
    """The problem of an unknown option, which may be a misspelt key that is no option."""
    if problem.hint is not None or problem.message != _UNKNOWN:
        return problem
    key = (problem.path or "").rpartition(".")[2]
    return attrs.evolve(problem, hint=nearest(key, handled))


def part_values(part: Selected) -> dict[str, Any]:
    """The component's section, as plain values with absolute paths and every default."""
    return {"type": part.registration.full_name, **_values(part.options)}


def _values(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    values: dict[str, Any] = attrs.asdict(
        options, filter=lambda field, _: field.init, value_serializer=_serialize
    )
    return values


def _serialize(_: Any, __: Any, value: Any) -> Any:
    if isinstance(value, Selected):
        # A name alone if it stands for the same, as it is mostly written.
        return _name_alone(value) or part_values(value)
    return str(value) if isinstance(value, Path) else value


def _name_alone(part: Selected) -> str | None:
    """The name of a component whose every option is null by default, and is not given."""
    fields = () if part.options is None else attrs.fields(type(part.options))
    values = [(f.default, getattr(part.options, f.name)) for f in fields if f.init]
    return part.registration.full_name if all(both == (None, None) for both in values) else None
