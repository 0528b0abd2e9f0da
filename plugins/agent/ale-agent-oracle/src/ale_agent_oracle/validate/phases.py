"""The runs of a validation: agents without a model in real sandboxes, all rewards stored."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import attrs
from attrs import evolve, field, frozen

import ale
from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale.runs import (
    Registry,
    RunReader,
    apply_overrides,
    build_choice,
    fingerprint,
    folder_format,
    parse_choice,
    read_sections,
    written_config,
)
from ale.strict import Node, from_plain, nearest_file
from ale.text import counted
from ale.types import Task
from ale_agent_oracle.forgeries import FORGERIES
from ale_agent_oracle.options import AttackName
from ale_agent_oracle.validate.badge import is_contested, write_badge

SOLUTION, NOTHING, MODEL = "solution", "nothing", "model"
OFFLINE = "offline-build"
"""Builds the images of tasks again, without a network."""
UNPLUGGED = "solution-without-network"
"""The solution once more, if a task has a network."""
AGAIN = "solution-with-badge"
"""The solution once more if it is contested, judged as with the badge of this validation."""
READ: AttackName = "read-answers"
ATTACKS: tuple[AttackName, ...] = get_args(AttackName)
_SETTINGS = ("concurrency", "seed", "open_timeout_s", "setup_timeout_s", "grading_timeout_s")
"""Options of a config's section ``run`` that a validation takes."""
_ABOUT = "validation.json"
_USED = "used.json"
"""A badge for this validation alone, which refuses no task: it has what solutions' passes used."""
_SHOWN = 5


@frozen(kw_only=True)
class Phase:
    """One run over all tasks."""

    name: str
    """Name of its run directory."""
    agent: Mapping[str, Any]
    """The section."""
    rollouts: int
    llm: Mapping[str, Any] | None = None
    sandbox: Mapping[str, Any] = field(factory=dict)
    """Options in place of the config's."""
    informed: bool = False
    """Its tasks say what their solutions' passes have used."""


@frozen(kw_only=True)
class Wanted:
    """The tasks to validate, and how."""

    target: Path
    """A config, or a folder of tasks."""
    repeats: int
    """Episodes of the solution and of doing nothing, per task."""
    attacks: bool
    attempts: int
    """Episodes of the config's own agent and model, per task; 0 without these."""
    sandbox: str | None = None
    """``TYPE[:OPTION=VALUE,...]`` in place of the config's."""
    concurrency: int | None = None
    overrides: Sequence[str] = ()


@frozen(kw_only=True, slots=False)
class Validation:
    """The checked config, its tasks, and the runs to make."""

    config: Mapping[str, Any]
    tree: Node
    """The config with where each value is from, for messages."""
    tasks: Sequence[Task]
    phases: Sequence[Phase]
    left_out: Sequence[str] = ()
    """Problems with tasks that the source could not read."""

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The same for the same config, tasks and phases only."""
        phases = {each.name: [each.agent, each.rollouts, each.llm] for each in self.phases}
        found = {
            "task": {task.id: fingerprint(task) for task in self.tasks},
            "run": phases,
            "option": dict(_flat(self.config)),
        }
        known: Mapping[str, Any] = json.loads(json.dumps(found, default=str))
        return known

    @property
    def digest(self) -> str:
        """A name for `facts`."""
        text = json.dumps(self.facts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def sandbox(self) -> str:
        """The type of the sandboxes."""
        return str(self.config["sandbox"]["type"])


def plan(wanted: Wanted, registry: Registry, note: Callable[[str], None]) -> Validation:
    """Check what is to be validated, and load its tasks.

    Args:
        note: shows what of a config is not used.

    Raises:
        InputError: with every problem; nothing is started.
    """
    tree = _tree(wanted, registry, note)
    given = tree.get("run")
    given_run = {} if given is None else (given.mapping or {})
    run = {key: node for key, node in given_run.items() if key in _SETTINGS}
    if wanted.concurrency is not None:
        run["concurrency"] = from_plain(wanted.concurrency, file="-n")
    sections = {**(tree.mapping or {}), "run": Node({**run}, tree.file, tree.line)}
    if wanted.sandbox is not None and not wanted.target.is_dir():
        sections["sandbox"] = parse_choice(wanted.sandbox, option="--sandbox")
    sections.setdefault("sandbox", from_plain({"type": "auto"}))
    if wanted.attempts == 0:
        sections["agent"] = from_plain({"type": "oracle"})
    tree = _unguarded(apply_overrides(Node(sections, tree.file, tree.line), wanted.overrides))
    config = written_config(tree, registry)
    with _placed(tree, "tasks"):
        _, source = build_choice(from_plain(config["tasks"]), "tasks", registry, BuildContext())
        tasks = [*source.load()]
    if not tasks:
        raise InputError.of("there are no tasks", file=str(wanted.target))
    agent, llm = config.pop("agent"), config.pop("llm", None)
    phases = [*_phases(wanted)]
    if any(part.constraints.network for task in tasks for part in (task, *task.steps)) and (
        "network" in _options(config, registry)
    ):
        oracle = {"type": "oracle"}
        phases.append(Phase(name=UNPLUGGED, agent=oracle, rollouts=1, sandbox={"network": False}))
    if any(task.environment.build for task in tasks) and ("build" in _options(config, registry)):
        nothing = {"type": "noop"}
        phases.append(Phase(name=OFFLINE, agent=nothing, rollouts=1, sandbox={"build": "offline"}))
    if wanted.attempts:  # first: a server that is not there ends the validation at once
        phases.insert(0, Phase(name=MODEL, agent=agent, rollouts=wanted.attempts, llm=llm))
    # Of a source that warns of tasks that it can't read, as that of task folders does.
    left_out = [str(problem) for problem in getattr(source, "refused", ())]
    return Validation(config=config, tree=tree, tasks=tasks, phases=phases, left_out=left_out)


def _unguarded(tree: Node) -> Node:
    """The config, with the tasks that its source `validated` guards in the place of that."""
    tasks = tree.get("tasks")
    kind = None if tasks is None else tasks.get("type")
    inner = None if tasks is None else tasks.get("tasks")
    if kind is None or inner is None or str(kind.value).rpartition("/")[2] != "validated":
        return tree
    return evolve(tree, value={**(tree.mapping or {}), "tasks": inner})


@contextmanager
def said_once() -> Iterator[None]:
    """Show each warning once inside the block: the same tasks are loaded for every run."""
    said: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in said
        said.add(text)
        return is_new

    handlers = [*logging.getLogger().handlers]
    for handler in handlers:
        handler.addFilter(new)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(new)


@contextmanager
def _placed(tree: Node, section: str = "") -> Iterator[None]:
    """Give problems with options the place that each is from, such as ``--sandbox``.

    Args:
        section: that a problem is with which names none.
    """
    try:
        yield
    except InputError as error:
        raise InputError([_at(tree, section, each) for each in error.problems]) from error


def _at(tree: Node, section: str, problem: Problem) -> Problem:
    if problem.file is not None or not (section or problem.path):
        return problem
    option = (problem.path or "").removeprefix(section).lstrip(".")
    path = ".".join(filter(None, [section, option]))
    found = tree.innermost(path)
    return evolve(problem, path=path, file=found.file, line=found.line)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _flat(child, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _options(config: Mapping[str, Any], registry: Registry) -> Set[str]:
    """The names of the options of the config's sandbox."""
    options = registry.find("sandbox", str(config["sandbox"]["type"])).component.options
    return set() if options is None else {each.name for each in attrs.fields(options)}


def _phases(wanted: Wanted) -> Iterator[Phase]:
    yield Phase(name=SOLUTION, agent={"type": "oracle"}, rollouts=wanted.repeats)
    yield Phase(name=NOTHING, agent={"type": "noop"}, rollouts=wanted.repeats)
    for name in ATTACKS if wanted.attacks else ():
        agent = {"type": "attack", "attack": name}
        yield Phase(name=name, agent=agent, rollouts=1, informed=name in FORGERIES)


def _tree(wanted: Wanted, registry: Registry, note: Callable[[str], None]) -> Node:
    path = wanted.target
    if path.is_dir():
        if wanted.attempts:
            message = "attempts need a config with an agent and a model, and this is a folder"
            raise InputError.of(message, file="--attempts")
        source, declared = folder_format(path, registry)
        made = {
            "tasks": {"type": source.component.name, "path": str(path.absolute())},
            "run": dict(declared.run),
        }
        sections = {
            **(from_plain(made, file=str(path)).mapping or {}),
            "sandbox": parse_choice(
                wanted.sandbox or declared.sandbox,
                option="--sandbox" if wanted.sandbox else str(path),
                instead_of=declared.sandbox,
            ),
        }
        return apply_overrides(Node(sections, str(path)), wanted.overrides)
    if not path.exists():
        expected = "a config, or a folder of tasks"
        raise InputError.of(
            "does not exist", file=str(path), expected=expected, hint=nearest_file(path)
        )
    uses = ("tasks", "sandbox", "run", *(("agent", "llm", "middleware") * bool(wanted.attempts)))
    root = read_sections(path, registry, command="ale validate", uses=uses, others=note)
    kept = {k: v for k, v in (root.mapping or {}).items() if k in (*uses, "plugins")}
    return Node(kept, root.file, root.line)


def carry_out(
    validation: Validation, folder: Path, tell: Callable[[str], None]
) -> Mapping[str, RunReader] | None:
    """Make the runs, or what is missing of them; each is a run of its own below the folder.

    Args:
        tell: is given a line for each run, and each note of theirs once.

    Returns:
        The runs by the names of their phases; None if the user has interrupted one.

    Raises:
        InputError: the folder has a validation of something else.
    """
    _claim(folder, validation)
    done: dict[str, RunReader] = {}
    left = [*validation.phases]
    said: set[str] = set()

    def tell_once(note: str) -> None:
        if note not in said:
            tell(note)
        said.add(note)

    while left:
        phase = left.pop(0)
        tell(
            f"{phase.name} ({len(done) + 1} of {len(done) + 1 + len(left)}): "
            f"{counted(len(validation.tasks) * phase.rollouts, 'episode')}"
        )
        run = _run(validation, phase, folder / phase.name, tell_once)
        if run.state != "completed":
            return None
        done[phase.name] = run
        if phase.name == SOLUTION:
            solutions = [*run.episodes]
            valid = dict.fromkeys((task.id for task in validation.tasks), True)
            about = (validation.tasks, validation.sandbox, None)
            write_badge(folder / _USED, valid, *about, solutions)
            if any(map(is_contested, solutions)):
                left.insert(0, Phase(name=AGAIN, agent=phase.agent, rollouts=1, informed=True))
    return done


def _run(
    validation: Validation, phase: Phase, path: Path, report: Callable[[str], None]
) -> RunReader:
    if (path / "manifest.json").exists():
        with _placed(validation.tree):
            return ale.resume(path, retry_broken=True, report=report)
    config = {
        **validation.config,
        "agent": phase.agent,
        "sandbox": {**validation.config["sandbox"], **phase.sandbox},
        "observers": [],
        "run": {
            **validation.config.get("run", {}),
            "name": phase.name,
            "rollouts": phase.rollouts,
            "stop_after_broken": None,
            "contested": "failed",  # as training counts it
        },
    }
    if phase.informed:
        badge = str((path.parent / _USED).absolute())
        config["tasks"] = {"type": "validated", "badge": badge, "tasks": config["tasks"]}
    if phase.llm is not None:
        config["llm"] = phase.llm
    with _placed(validation.tree):
        return ale.run(config, directory=path, report=report)


def _claim(folder: Path, validation: Validation) -> None:
    about = folder / _ABOUT
    if about.exists() and any(folder.glob("*/manifest.json")):  # else its first run was refused
        found = json.loads(about.read_text())
        if found.get("digest") != validation.digest:
            changes = [*_changes(found.get("facts", {}), validation.facts)]
            more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
            what = f": {', '.join(changes[:_SHOWN])}{more}" if changes else ""
            message = f"has a validation of other tasks or options{what}"
            hint = "choose another --out; without it, each set of tasks has a folder of its own"
            raise InputError.of(message, file=str(folder), hint=hint)
        return
    folder.mkdir(parents=True, exist_ok=True)
    written = {"schema": 1, "digest": validation.digest, "facts": validation.facts}
    about.write_text(json.dumps(written, indent=2) + "\n")


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Differences, such as ``task 'a' has changed`` and ``option 'sandbox.cpus' is new``."""
    for kind in new:
        before, now = old.get(kind, {}), new[kind]
        for name in {**before, **now}:
            if before.get(name) != now.get(name):
                gone = "is gone" if name not in now else "has changed"
                how = "is new" if name not in before else gone
                yield f"{kind} '{name}' {how}"


def goals(choice: str, registry: Registry) -> Mapping[str, str]:
    """The goals of other tasks by id and source, for `overlap`.

    Args:
        choice: a task source, as ``TYPE:OPTION=VALUE``.

    Raises:
        InputError: it can't be built or read.
    """
    _, source = build_choice(parse_choice(choice, option="--against"), "tasks", registry)
    return {f"{task.id} of {choice}": task.goal for task in source.load()}
