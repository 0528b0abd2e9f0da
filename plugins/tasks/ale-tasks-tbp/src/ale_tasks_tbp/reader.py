"""One task file to one `Task`."""

from pathlib import Path

import attrs
from attrs import frozen

from ale.errors import InputError, Problem
from ale.strict import Node, nearest, read_text, read_yaml, structure
from ale.types import Constraints, CriterionSpec, Environment, Task
from ale_tasks_tbp.taskfile import CriterionEntry, TaskFile

FOLDER_FILES = ("task.yaml", "task.yml")
_OWN_KEYS = ("type", "weight")
_SHELLS = ("sh", "bash")


@frozen
class Read:
    """A task and the line of its id."""

    task: Task
    line: int | None


def read_task(file: Path) -> Read:
    """Read one task file, with the other files of its folder if it has its own.

    Args:
        file: ``<id>.yaml``, or ``<id>/task.yaml``; a solution.sh and a folder files/ beside the
            latter belong to the task.

    Raises:
        InputError: with every problem of the file.
    """
    document = read_yaml(file)
    if document.mapping is None:
        raise InputError([document.problem("expected a task: a mapping of 'id', 'goal', ...")])
    problems: list[Problem] = []
    written: TaskFile | None = None
    try:
        written = structure(_with_options_apart(document, problems), TaskFile)
    except InputError as error:
        problems += error.problems
    own_folder = file.parent if file.name in FOLDER_FILES else None
    script = None if own_folder is None else own_folder / "solution.sh"
    solution = _solution(document, script, problems)
    problems += _wrong_build(document, written)
    if problems or written is None:
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0))
    if solution is not None:
        written = attrs.evolve(written, solution=solution)
    return Read(_task(written, document, own_folder), document.mapping["id"].line)


def _with_options_apart(document: Node, problems: list[Problem]) -> Node:
    """The document with the options of each criterion gathered under ``options``.

    What is then structured has fixed keys only, and each of them keeps its line.
    """
    entries = document.get("success_criteria")
    if entries is None or entries.items is None:
        return document
    gathered = [
        _gather(entry, f"success_criteria[{i}]", problems) for i, entry in enumerate(entries.items)
    ]
    assert document.mapping is not None
    criteria = Node(gathered, entries.file, entries.line)
    return Node({**document.mapping, "success_criteria": criteria}, document.file, document.line)


def _gather(entry: Node, path: str, problems: list[Problem]) -> Node:
    if entry.mapping is None:
        return entry
    own = {key: child for key, child in entry.mapping.items() if key in _OWN_KEYS}
    rest = {key: child for key, child in entry.mapping.items() if key not in _OWN_KEYS}
    if "type" not in own:
        hint = _nearest_of("type", rest)
        expected = "type: name of the criterion"
        problems.append(entry.problem("'type' is missing", path=path, expected=expected, hint=hint))
        own["type"] = Node("-", entry.file, entry.line)  # reported above
    return Node({**own, "options": Node(rest, entry.file, entry.line)}, entry.file, entry.line)


def _nearest_of(wanted: str, written: dict[str, Node]) -> str | None:
    """``'typ' is not 'type'`` where one of the written keys looks like the one wanted."""
    close = [key for key in written if nearest(key, [wanted]) is not None]
    return f"'{close[0]}' is not '{wanted}'" if close else None


def _solution(
    document: Node, script: Path | None, problems: list[Problem]
) -> tuple[str, ...] | None:
    """The text of solution.sh as one command, so that loops and here-documents stay whole."""
    if script is None or not script.is_file():
        return None
    inline = document.get("solution")
    if inline is not None and inline.value is not None:
        problems.append(
            inline.problem(
                "a solution is here and in solution.sh", path="solution", hint="remove one"
            )
        )
    try:
        text = read_text(script)
    except InputError as error:
        problems += error.problems
        return None
    problems += _wrong_script(text, str(script))
    return (text,)


def _wrong_script(text: str, file: str) -> list[Problem]:
    first = text.partition("\n")[0]
    if not text.strip():
        return [Problem(message="is empty", file=file, line=1)]
    if first.startswith("#!") and first.split("/")[-1].split()[-1] not in _SHELLS:
        return [
            Problem(
                message=f"expected a script for sh or bash, found '{first}'",
                file=file,
                line=1,
                hint="it runs in a shell; call other interpreters from there",
            )
        ]
    return []


def _wrong_build(document: Node, written: TaskFile | None) -> list[Problem]:
    if written is None or written.environment.build is None or written.environment.build.is_dir():
        return []
    environment = document.get("environment")
    node = None if environment is None else environment.get("build")
    assert node is not None
    folder = written.environment.build
    beside = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
    return [
        node.problem(
            f"no such folder: {folder}",
            path="environment.build",
            hint=nearest(folder.name, beside),
        )
    ]


def _task(written: TaskFile, document: Node, own_folder: Path | None) -> Task:
    file = str(document.file)
    entries = document.get("success_criteria")
    assert entries is not None
    assert entries.items is not None
    files = None if own_folder is None else own_folder / "files"
    environment = written.environment
    build = None if environment.build is None else str(environment.build)
    return Task(
        id=written.id,
        goal=written.goal,
        description=written.description,
        origin=file,
        tags=written.tags,
        files=None if files is None or not files.is_dir() else str(files),
        setup_steps=written.setup_steps,
        criteria=tuple(
            _criterion(entry, file, node.line)
            for entry, node in zip(written.success_criteria, entries.items, strict=True)
        ),
        constraints=Constraints(**attrs.asdict(written.constraints, recurse=False)),
        environment=Environment(**{**attrs.asdict(environment, recurse=False), "build": build}),
        keep_processes=written.keep_processes,
        solution=written.solution,
        metadata=written.metadata,
    )


def _criterion(entry: CriterionEntry, file: str, line: int | None) -> CriterionSpec:
    return CriterionSpec(
        type=entry.type, options=entry.options, weight=entry.weight, file=file, line=line
    )
