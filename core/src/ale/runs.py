"""Read stored runs, and split and credit their episodes again.

Nothing is sampled or written. Iterators read from disk one record at a time (one group at a time
for credit), so memory does not grow with the run.
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attrs import field, frozen

from ale._config import load_config, structure_config
from ale._config.auto import not_isolated, refusal
from ale._config.environment import notes as environment_notes
from ale._config.environment import overriding, parse_environment, values_from
from ale._config.load import SECTIONS, required_isolation, select, unknown_section
from ale._config.model import (
    PARTS,
    EvaluationOptions,
    LaunchOptions,
    RunConfig,
    RunOptions,
    SandboxRequirements,
)
from ale._config.plugin_files import KEY as PLUGINS
from ale._config.plugin_files import load_plugin_files
from ale._config.source import merge, parse_overrides, read_source
from ale._registry import Registration, Registry, how_to_install
from ale._run.crediting import Crediting
from ale._run.evaluation import END_OF_DEMONSTRATIONS
from ale._run.fingerprint import fingerprint, path_in, trained_too, without_keys
from ale._run.interrupt import CANCELLING, FINISHING, TERMINATED
from ale._run.manifest import FOR_THIS_TIME, changes, versions
from ale._run.parts import build, built_options
from ale._run.plan import planned_episodes
from ale._run.start import Host, check_run, saved_config, secret_names
from ale._store import Redactor, RunReader
from ale._store.branch import BRANCHED_FROM, branch_run
from ale._store.checkpoints import Checkpoints
from ale._store.codec import plain
from ale._store.diagnosis import (
    Causes,
    Learning,
    adapted,
    alerts,
    ended_because,
    learning,
    model_name,
    short_groups,
)
from ale._store.directory import nearest_run
from ale._store.frames import frame
from ale._store.index import SUCCESS, Index
from ale._store.lines import Lines, OnDamage
from ale._store.lock import holder, lock
from ale._store.notes import FILE as NOTES
from ale._store.notes import Notes, add_note, hold_notes
from ale._store.scores import located
from ale._store.shared import append_record
from ale.errors import InputError, PluginError
from ale.plugin import Benchmark, BuildContext, Ranks
from ale.strict import Node, from_plain, nearest, parse_yaml
from ale.types import Task

__all__ = [
    "BRANCHED_FROM",
    "CANCELLING",
    "END_OF_DEMONSTRATIONS",
    "FINISHING",
    "NOTES",
    "PARTS",
    "SECTIONS",
    "SUCCESS",
    "TERMINATED",
    "Causes",
    "Checked",
    "Checkpoints",
    "Crediting",
    "EvaluationOptions",
    "Index",
    "LaunchOptions",
    "Learning",
    "Lines",
    "Notes",
    "OnDamage",
    "Redactor",
    "Registration",
    "Registry",
    "RunConfig",
    "RunOptions",
    "RunReader",
    "SandboxRequirements",
    "adapted",
    "add_note",
    "alerts",
    "append_record",
    "apply_environment",
    "apply_overrides",
    "branch_run",
    "build_choice",
    "changed_tasks",
    "changes_for_resume",
    "check_choice",
    "check_config",
    "ended_because",
    "environment_notes",
    "environment_overrides",
    "evaluated_on",
    "find_component",
    "fingerprint",
    "folder_format",
    "frame",
    "hold_notes",
    "holder",
    "learning",
    "load_config",
    "load_plugins",
    "located",
    "lock",
    "model_name",
    "nearest_run",
    "only_runs",
    "parse_choice",
    "path_in",
    "read_choice",
    "read_sections",
    "read_source",
    "runs_in",
    "secret_names",
    "short_groups",
    "versions",
    "without_overrides",
    "written_config",
]


@frozen(kw_only=True)
class Checked:
    """The plan of `ale run` for a config."""

    config: Mapping[str, Any]
    """The whole config as plain values, as in a run's manifest; itself a valid config."""
    episodes: int | None
    """Number of training and evaluation episodes; None where start schemes decide it."""
    path: Path = field(eq=False)
    """Where it would be stored."""
    launch: LaunchOptions
    """Options of the section ``launch`` that every launcher has."""
    ranks: Ranks | None
    """The processes of its trainer, where torchrun can start them."""


def check_config(
    path: Path,
    registry: Registry,
    overrides: Sequence[str] = (),
    format: str | None = None,
    directory: Path | None = None,
) -> Checked:
    """Check a config and its tasks as `ale check` does, without starting anything.

    Args:
        overrides: as for `--set`: ``credit.type=grpo``.
        format: as for `--format`: the format of a file that is not in `ale`'s own.
        directory: as for `--directory`.

    Raises:
        InputError: with every problem.
    """
    loaded = load_config(path, registry, overrides, format)
    ready = check_run(loaded, path.stem, Host(registry=registry, checking=True), directory)
    planned = planned_episodes(loaded, ready.tasks)
    episodes = None if planned is None else sum(planned.values())
    return Checked(
        config=plain(loaded.resolved),
        episodes=episodes,
        path=ready.path,
        launch=loaded.launching,
        ranks=_ranks(loaded),
    )


def _ranks(config: RunConfig) -> Ranks | None:
    trainer = config.trainer
    found = None if trainer is None else trainer.registration.component.ranks
    return None if trainer is None or found is None else found(trainer.options)


def only_runs(paths: Sequence[Path], *, below: bool = False) -> list[Path]:
    """The paths that are runs, of those that a pattern such as ``runs/*`` gives.

    The others, such as a database beside the runs, are named on standard error. A path that does
    not exist is kept, for the error; so are all if none is a run.

    Args:
        paths: as given.
        below: folders that contain runs, at any depth, are kept too.
    """

    def kept(path: Path) -> bool:
        if not path.exists() or (path / "manifest.json").exists():
            return True
        return below and next(path.rglob("manifest.json"), None) is not None

    found = [path for path in paths if kept(path)]
    for path in paths if found else ():
        if path not in found:
            print(f"skipped {path}: not a run", file=sys.stderr)
    return found or [*paths]


def changes_for_resume(
    run: RunReader, config: Path, registry: Registry
) -> tuple[list[str], list[str]]:
    """How a config differs from that of a stored run, as a resume takes it.

    Args:
        run: the stored run.
        config: of the YAML file.
        registry: the components to choose from.

    Returns:
        The keys that no resume may change, and the other differences as ``key=value`` for `--set`.

    Raises:
        InputError: the config is not valid.
    """
    made = changes(saved_config(run, registry), load_config(config, registry))
    allowed = [each for each in made if each.allowed and each.path not in FOR_THIS_TIME]
    return (
        [each.path for each in made if not each.allowed],
        [f"{each.path}={json.dumps(each.now)}" for each in allowed],
    )


def changed_tasks(
    run: RunReader,
    config: Path,
    registry: Registry,
    digests: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """How the tasks of a config differ from those of a stored run, which a resume uses.

    Args:
        config: of the YAML file.
        digests: by id, as `fingerprint` gave them for the run: for the contents of files that a
            task names, such as its tests.

    Returns:
        ``'ID' is new``, ``'ID' is another one now``, ``'ID' has other files now`` or ``'ID' is
        gone``.

    Raises:
        InputError: the config is not valid, or a task can't be read.
    """
    stored = {task.id: _facts(task) for task in run.tasks}
    if len(stored) != run.manifest["n_tasks"]:
        return []  # it was killed while it stored them: a resume reads them again
    loaded = load_config(config, registry)
    context = Host(registry=registry).context(loaded, run.path, str(run.manifest["run_id"]))
    read = {task.id: task for task in build(loaded.tasks, context).load()}
    now = {id: _facts(task) for id, task in read.items()}
    both = stored.keys() & now.keys()
    same = [id for id in now if id in both and now[id] == stored[id] and id in digests]
    return [
        *(f"'{id}' is new" for id in now if id not in stored),
        *(f"'{id}' is another one now" for id in now if id in both and now[id] != stored[id]),
        *(f"'{id}' has other files now" for id in same if fingerprint(read[id]) != digests[id]),
        *(f"'{id}' is gone" for id in stored if id not in now),
    ]


def _facts(task: Task) -> str:
    """A task without where it was read."""
    told = plain(task)
    for part in (told, *told.get("steps", ())):
        part.pop("origin", None)
        for criterion in part.get("criteria", ()):
            criterion.pop("file", None)
            criterion.pop("line", None)
    return without_keys(task, json.dumps(told, sort_keys=True))


def written_config(tree: Node, registry: Registry, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Check the sections of a config, and give them as plain values to write to a file.

    Only what the tree and the overrides give, without defaults, and with absolute paths; nothing is
    built.

    Args:
        tree: a config; each node's file is where a problem is reported to be.
        overrides: as for `--set`: ``credit.type=grpo``.

    Raises:
        InputError: with every problem.
    """
    merged = apply_overrides(tree, overrides)
    config = structure_config(merged, registry)
    written: dict[str, Any] = _as_written(merged, plain(config.resolved))
    return written


def _as_written(node: Node, resolved: Any) -> Any:
    """The resolved values of what stands in a tree; a component keeps its short name."""
    if node.mapping is not None and isinstance(resolved, dict):
        made = {
            key: child.value if key == "type" else _as_written(child, resolved[key])
            for key, child in node.mapping.items()
            if key in resolved
        }
        # An option that is a component may have been a name, or be named by another key.
        named = node.replaced_text is None and len(made) == len(node.mapping)
        return made if named or "type" not in resolved else {"type": resolved["type"], **made}
    if node.items is not None and isinstance(resolved, list):
        return [_as_written(*pair) for pair in zip(node.items, resolved, strict=True)]
    return resolved


def runs_in(folder: Path, refused: Callable[[OSError], None]) -> Iterator[Path]:
    """The run directories in a folder, at any depth; hidden folders are left out.

    Args:
        refused: called for each folder that can't be read.
    """
    for path, inner, files in os.walk(folder.resolve(), onerror=refused):
        if "manifest.json" in files:
            yield Path(path)
            inner.clear()
        inner[:] = sorted(name for name in inner if not name.startswith("."))


def folder_format(folder: Path, registry: Registry) -> tuple[Registration, Benchmark]:
    """The task source that reads a folder of tasks, and what it declares of this format.

    Names of files decide, whole names before those with wildcards.

    Raises:
        InputError: no installed task source reads it.
    """
    declared = [
        ("*" in glob, glob, source, benchmark)
        for source in registry.registrations("tasks")
        for benchmark in source.component.benchmarks
        for glob in benchmark.folders
    ]
    for _, glob, source, benchmark in sorted(declared, key=lambda each: each[:2]):
        if next(folder.rglob(glob), None) is not None:
            return source, benchmark
    names = ", ".join(glob for _, glob, *_ in declared)
    expected = f"a folder with files such as {names}" if names else "no package reads folders"
    hint = "give a config whose section 'tasks' names another source"
    raise InputError.of("no tasks in here", file=str(folder), expected=expected, hint=hint)


def apply_overrides(node: Node, overrides: Sequence[str]) -> Node:
    """A tree with values such as ``credit.type=grpo`` merged into it, as ``--set`` does.

    Where the ``type`` of a section changes, options that the new type lacks are dropped when it is
    selected.

    Raises:
        InputError: an override is not ``key=value``.
    """
    return Node(merge(node, parse_overrides(overrides)).value, node.file, node.line)


def apply_environment(node: Node, environ: Mapping[str, str], given: Collection[str] = ()) -> Node:
    """A tree with variables such as ``ALE_LLM__MODEL`` merged into it.

    For a command that makes a config of its own options. `environment_notes` says which values of
    the result are from variables.

    Args:
        given: options that were typed, which no variable overrides: what their nodes have as their
            file, such as ``--model``.

    Raises:
        InputError: a variable has one underscore where two are meant, or its value is no YAML.
    """
    merged = merge(node, parse_environment(environ, SECTIONS))
    merged = merge(merged, values_from(node, given) or Node({}))
    return Node(merged.value, node.file, node.line)


def environment_overrides(environ: Mapping[str, str]) -> list[str]:
    """Variables such as ``ALE_LLM__MODEL``, which override a config, as ``llm.model=value``.

    For processes elsewhere, which don't have them.
    """
    return [f"{key}={environ[name]}" for name, key in overriding(environ).items()]


def without_overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process whose config has the overriding variables' values already."""
    overrides = overriding(environ)
    return {name: value for name, value in environ.items() if name not in overrides}


def parse_choice(text: str, *, option: str, instead_of: str | None = None) -> Node:
    """``ipa:gamma=0.9,failure_reward=-1`` as the mapping that a config would have.

    Args:
        text: a component's name; then, after a colon, options as in YAML, with commas between:
            ``gae:bootstrap=[time_limit, max_turns],lam=1``.
        option: the command-line option, for messages: ``--scheme``.
        instead_of: the choice that it replaces, whose options stay where the new type has them.

    Raises:
        InputError: an option is not ``name=value``.
    """
    if instead_of is not None:
        below = parse_choice(instead_of, option=option)
        return merge(below, parse_choice(text, option=option))
    name, _, rest = text.partition(":")
    entries = {"type": Node(name, option)}
    for pair in _pairs(rest):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError.of(f"expected option=value, found '{pair}'", file=option)
        entries[key] = Node(parse_yaml(value, file=option).value, option)
    return Node(dict(entries), option)


def _pairs(text: str) -> list[str]:
    """The text cut at its commas, but for those of YAML's lists and mappings."""
    pairs: list[str] = []
    nested = 0
    for part in filter(None, text.split(",")):
        if nested > 0:
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
        nested += sum(map(part.count, "[{")) - sum(map(part.count, "]}"))
    return pairs


def read_sections(
    path: Path,
    registry: Registry,
    *,
    command: str,
    uses: Collection[str],
    others: Callable[[str], None] | None = None,
) -> Node:
    """The tree of a config of which a command uses some sections, with its plugin files loaded.

    Nothing that is written is left aside without a word: a section that the command does not use
    is an error, or is named if the config is one of `ale run` from which the command takes a part.

    Args:
        command: as it is typed, such as ``ale proxy``.
        uses: the names of sections; ``plugins`` is used by every command.
        others: shows which other sections a config has that is shared with `ale run`; None: such a
            config is refused.

    Raises:
        InputError: the file can't be read, or has a section that is unknown or not used.
    """
    root = read_source(path)
    assert root.mapping is not None
    given = {key: node for key, node in root.mapping.items() if node.value is not None}
    known = [*uses, PLUGINS]
    left = [key for key in given if key in SECTIONS and key not in known]
    problems = [unknown_section(root, key) for key in given if key not in SECTIONS]
    if others is None:
        expected = f"only {', '.join(known)}"
        message = f"{command} does not use this section"
        problems += [given[key].problem(message, path=key, expected=expected) for key in left]
    elif left:
        others(f"{path}: {command} uses {', '.join(uses)}, and not {', '.join(left)}")
    if problems:
        raise InputError(problems)
    load_plugin_files(root, registry)
    return root


def find_component(registry: Registry, kind: str, name: str, *, option: str) -> Registration:
    """The component of this name.

    Args:
        option: that the name was given by, for messages: ``--type``.

    Raises:
        InputError: there is none, with the nearest name.
    """
    try:
        return registry.find(kind, name)
    except PluginError as error:
        known = registry.names(kind)
        hint = how_to_install(kind, name) or nearest(name, known) if name not in known else None
        raise InputError.of(str(error), file=option, hint=hint) from None


def evaluated_on(run: RunReader) -> str:
    """``held-out tasks``, ``tasks it trains on``, or ``evaluation tasks`` where it trains on some.

    Of a run that trains; they are told apart by their content, whatever their names.
    """
    if "trainer" not in run.manifest["config"]:
        return "held-out tasks"
    files = (run.tasks.path, run.evaluation_tasks.path)
    return _evaluated_on(run.path, tuple(f.stat().st_size if f.exists() else 0 for f in files))


@lru_cache(64)
def _evaluated_on(path: Path, _: tuple[int, ...]) -> str:
    run = RunReader(path)
    evaluated = [*run.evaluation_tasks]
    both = trained_too(run.tasks, evaluated)
    if not both:
        return "held-out tasks"
    return "tasks it trains on" if len(both) == len(evaluated) else "evaluation tasks"


def load_plugins(run: RunReader, registry: Registry) -> None:
    """Register what the plugin files of a run's config implement, as they are now.

    Raises:
        InputError: a file is missing or broken.
    """
    file = str(run.path / "manifest.json")
    load_plugin_files(from_plain(run.manifest["config"], file=file), registry)


def check_choice(choice: Node, kind: str, registry: Registry, *, path: str) -> None:
    """Check what ``{type: ..., option: ...}`` selects, without building it.

    Args:
        kind: as ``ale plugins`` names it: ``chunker``, ``credit``, ...
        path: of the choice, for problems.

    Raises:
        InputError: no package provides it, or an option is invalid.
    """
    select(choice, kind, registry, path=path)


def read_choice(choice: Node, kind: str, registry: Registry) -> Any:
    """The options of what ``{type: ..., option: ...}`` selects, with the components in them built.

    Args:
        kind: as ``ale plugins`` names it: ``trainer``, ``credit``, ...

    Raises:
        InputError: no package provides it, an option is invalid, or a component can't be built.
    """
    return built_options(select(choice, kind, registry, path=kind), BuildContext())


def build_choice(
    choice: Node, kind: str, registry: Registry, context: BuildContext | None = None
) -> tuple[str, Any]:
    """Build the component that ``{type: ..., option: ...}`` selects; its name and product.

    Args:
        kind: as ``ale plugins`` names it: ``chunker``, ``credit``, ...
        context: default: a context without a run and without secrets.

    Raises:
        InputError: no package provides it, an option is invalid, it can't be built here, or it is a
            sandbox that does not isolate what ``require`` names.
    """
    picked = select(choice, kind, registry, path=kind)
    made = build(picked, context or BuildContext())
    required = required_isolation(choice) if kind == "sandbox" else ()
    if required and (refused := refusal(not_isolated(made.capabilities), required)):
        message = f"sandbox '{picked.name}' {refused} on this machine"
        raise choice.error(message, path="sandbox.require")
    return picked.name, made
