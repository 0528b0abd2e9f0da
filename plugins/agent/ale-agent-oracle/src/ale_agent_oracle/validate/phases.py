"""The runs of a validation: agents without a model in real sandboxes, all rewards stored."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from attrs import frozen

import ale
from ale.errors import InputError
from ale.plugin import BuildContext
from ale.runs import (
    Registry,
    RunReader,
    apply_overrides,
    build_choice,
    folder_format,
    parse_choice,
    read_sections,
    written_config,
)
from ale.strict import Node, from_plain, nearest_file
from ale.text import counted
from ale.types import Task
from ale_agent_oracle.options import AttackName
from ale_agent_oracle.validate.badge import fingerprint

SOLUTION, NOTHING, MODEL = "solution", "nothing", "model"
READ: AttackName = "read-answers"
ATTACKS: tuple[AttackName, ...] = get_args(AttackName)
_SETTINGS = ("concurrency", "seed", "open_timeout_s", "setup_timeout_s", "grading_timeout_s")
"""Options of a config's section ``run`` that a validation takes."""
_ABOUT = "validation.json"


@frozen(kw_only=True)
class Phase:
    """One run over all tasks."""

    name: str
    """Name of its run directory."""
    agent: Mapping[str, Any]
    """The section."""
    rollouts: int
    llm: Mapping[str, Any] | None = None


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


@frozen(kw_only=True)
class Validation:
    """The checked config, its tasks, and the runs to make."""

    config: Mapping[str, Any]
    tasks: Sequence[Task]
    phases: Sequence[Phase]

    @property
    def digest(self) -> str:
        """The same for the same config, tasks and phases only."""
        facts = [
            self.config,
            [fingerprint(task) for task in self.tasks],
            [[phase.name, phase.agent, phase.rollouts, phase.llm] for phase in self.phases],
        ]
        text = json.dumps(facts, sort_keys=True, default=str)
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
    if wanted.attempts == 0:
        sections["agent"] = from_plain({"type": "oracle"})
    config = written_config(Node(sections, tree.file, tree.line), registry, wanted.overrides)
    _, source = build_choice(from_plain(config["tasks"]), "tasks", registry, BuildContext())
    tasks = [*source.load()]
    if not tasks:
        raise InputError.of("there are no tasks", file=str(wanted.target))
    agent, llm = config.pop("agent"), config.pop("llm", None)
    phases = [*_phases(wanted)]
    if wanted.attempts:  # first: a server that is not there ends the validation at once
        phases.insert(0, Phase(name=MODEL, agent=agent, rollouts=wanted.attempts, llm=llm))
    return Validation(config=config, tasks=tasks, phases=phases)


def _phases(wanted: Wanted) -> Iterator[Phase]:
    yield Phase(name=SOLUTION, agent={"type": "oracle"}, rollouts=wanted.repeats)
    yield Phase(name=NOTHING, agent={"type": "noop"}, rollouts=wanted.repeats)
    for name in ATTACKS if wanted.attacks else ():
        yield Phase(name=name, agent={"type": "attack", "attack": name}, rollouts=1)


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
) -> Mapping[str, RunReader]:
    """Make the runs, or what is missing of them; each is a run of its own below the folder.

    Args:
        tell: is given a line for each run, and each note of theirs once.

    Returns:
        The runs by the names of their phases; fewer if the user has interrupted one.

    Raises:
        InputError: the folder has a validation of something else.
    """
    _claim(folder, validation)
    done = {}
    said: set[str] = set()

    def tell_once(note: str) -> None:
        if note not in said:
            tell(note)
        said.add(note)

    for number, phase in enumerate(validation.phases, 1):
        tell(
            f"{phase.name} ({number} of {len(validation.phases)}): "
            f"{counted(len(validation.tasks) * phase.rollouts, 'episode')}"
        )
        run = _run(validation, phase, folder / phase.name, tell_once)
        if run.state != "completed":
            break
        done[phase.name] = run
    return done


def _run(
    validation: Validation, phase: Phase, path: Path, report: Callable[[str], None]
) -> RunReader:
    if (path / "manifest.json").exists():
        return ale.resume(path, retry_broken=True, report=report)
    config = {
        **validation.config,
        "agent": phase.agent,
        "observers": [],
        "run": {
            **validation.config.get("run", {}),
            "name": phase.name,
            "rollouts": phase.rollouts,
            "stop_after_broken": None,
            "contested": "failed",  # as training counts it
        },
    }
    if phase.llm is not None:
        config["llm"] = phase.llm
    return ale.run(config, directory=path, report=report)


def _claim(folder: Path, validation: Validation) -> None:
    about = folder / _ABOUT
    if about.exists():
        found = json.loads(about.read_text()).get("digest")
        if found != validation.digest:
            message = "has a validation of other tasks or options"
            raise InputError.of(message, file=str(folder), hint="choose another --out")
        return
    folder.mkdir(parents=True, exist_ok=True)
    about.write_text(json.dumps({"schema": 1, "digest": validation.digest}) + "\n")


def goals(choice: str, registry: Registry) -> Mapping[str, str]:
    """The goals of other tasks by id, for `overlap`.

    Args:
        choice: a task source, as ``TYPE:OPTION=VALUE``.

    Raises:
        InputError: it can't be built or read.
    """
    _, source = build_choice(parse_choice(choice, option="--against"), "tasks", registry)
    return {task.id: task.goal for task in source.load()}
