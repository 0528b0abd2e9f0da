"""The badge that a validation leaves beside tasks, and the task source that asks for it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import InputError
from ale.judging import MOST_USED
from ale.plugin import BuildContext, doc
from ale.protocols import TaskSource
from ale.runs import fingerprint
from ale.types import Episode, Task, replace
from ale_agent_oracle.options import AttackName

_SHOWN = 5


def check_writable(path: Path) -> None:
    """Check that a badge can be written, before a validation begins.

    Raises:
        InputError: there is no such folder.
        OSError: the file can't be written.
    """
    if not path.parent.is_dir():
        raise InputError.of(f"no such folder: {path.parent}", path="--badge")
    new = not path.exists()
    path.open("a").close()
    if new:
        path.unlink()


def write_badge(
    path: Path,
    valid: Mapping[str, bool],
    tasks: Sequence[Task],
    sandbox: str,
    untried: Mapping[str, Sequence[str]] | None,
    solutions: Sequence[Episode],
    passed_by: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write which tasks are valid, each with its digest, and whether they were attacked.

    Args:
        solutions: the episodes of reference solutions: what the tests used in their passes is
            written, and of which tasks these are contested, as they need what counts as tools.
        passed_by: attacks that pass a task, where nothing else speaks against it.
        untried: attacks that were not tried, by task; None if none was tried on any.

    Raises:
        OSError: the file can't be written.
    """
    used = used_by_solutions(solutions)
    contested = {episode.task_id for episode in solutions if is_contested(episode)}
    found = {
        task.id: {
            "digest": fingerprint(task),
            "valid": valid[task.id],
            "attacks_not_tried": "all" if untried is None else [*untried.get(task.id, ())],
            **({"used": [*used[task.id]]} if task.id in used else {}),
            **({"contested": True} if task.id in contested else {}),
            **({"passed_by": [*passed_by[task.id]]} if passed_by and task.id in passed_by else {}),
        }
        for task in tasks
    }
    n_valid = sum(valid.values())
    unsure = untried is None or any(untried.values())
    attacked = (", not attacked" if untried is None else ", some attacks not tried") * unsure
    about = {
        "schema": 1,
        "label": "ale validate",
        "message": f"{n_valid} of {len(tasks)} tasks valid{attacked}",
        "sandbox": sandbox,
        "tasks": found,
    }
    path.write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")


def used_by_solutions(episodes: Iterable[Episode]) -> Mapping[str, Sequence[str]]:
    """The paths that the tests have used when reference solutions passed, by task: those of all
    passes together, contested ones too. Without tasks for which they are not known, or too many to
    be stored."""
    found: dict[str, set[str]] = {}
    unknown = set()
    for episode in episodes:
        used = [score.used for score in episode.scores if score.used is not None]
        passed = episode.reward == 1 or is_contested(episode)
        if not passed or not used:
            continue
        if any(len(paths) >= MOST_USED for paths in used):
            unknown.add(episode.task_id)
        found.setdefault(episode.task_id, set()).update(*used)
    return {task: sorted(paths) for task, paths in found.items() if task not in unknown}


def is_contested(episode: Episode) -> bool:
    """Whether it has passed but for a verdict that is contested, which counts as 0 here."""
    values = [1.0 if score.contested is not None else score.value for score in episode.scores]
    return any(score.contested is not None for score in episode.scores) and min(values) == 1


@frozen(kw_only=True)
class ValidatedOptions:
    """Tasks of another source that have passed `ale validate`."""

    tasks: Any = field(metadata=doc("The task source.", component="tasks"))
    badge: Path = field(metadata=doc("The file that `ale validate --badge` has written."))
    accept: tuple[AttackName, ...] = field(
        default=(),
        metadata=doc(
            "Attacks that a task may be passed by, if nothing else speaks against it: tests that "
            "import the work into their own process are passed by quitting-work."
        ),
    )


class ValidatedTasks:
    """The tasks of a source, which must all be valid and unchanged since they were validated."""

    def __init__(self, options: ValidatedOptions, context: BuildContext) -> None:
        self._source: TaskSource = options.tasks
        self._badge = options.badge
        self._accepted = frozenset(options.accept)

    def load(self) -> Iterator[Task]:
        """The source's tasks, in its order, each with what its reference solution's pass has used.

        Raises:
            InputError: one is not in the badge, has changed, or is not valid; nothing is yielded.
        """
        known, tasks = self._known(), [*self._source.load()]
        reasons = [(task.id, self._refused(task, known)) for task in tasks]
        refused = [f"{name} ({why})" for name, why in reasons if why]
        if refused:
            more = f", and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
            raise InputError.of(
                f"not validated: {', '.join(refused[:_SHOWN])}{more}",
                path="tasks.badge",
                hint=self._hint([why for _, why in reasons if why]),
            )
        for task in tasks:
            seen = {
                "reference_used": known[task.id]["used"],
                "reference_contested": known[task.id]["contested"],
            }
            steps = tuple(replace(step, **seen) for step in task.steps)
            yield replace(task, **seen, steps=steps)

    def _hint(self, reasons: Sequence[str]) -> str:
        hint = f"ale validate CONFIG --badge {self._badge}"
        if any(why.startswith("passed by ") for why in reasons):
            hint += "; tasks that attacks alone speak against are let in by `accept: [ATTACK, ...]`"
        return hint

    def _known(self) -> Mapping[str, Any]:
        expected = "what `ale validate --badge FILE` writes"
        if not self._badge.exists():
            hint = f"ale validate CONFIG --badge {self._badge}"
            message = "there is no such file"
            raise InputError.of(message, file=str(self._badge), expected=expected, hint=hint)
        try:
            found = json.loads(self._badge.read_text())["tasks"]
            return {str(key): _read(each) for key, each in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"can't be read: {error}"
            raise InputError.of(message, file=str(self._badge), expected=expected) from None

    def _refused(self, task: Task, known: Mapping[str, Any]) -> str | None:
        if task.id not in known:
            return "never validated"
        if not known[task.id].get("valid"):
            passed_by = known[task.id]["passed_by"]
            if not passed_by:
                return "found not valid"
            if more := [name for name in passed_by if name not in self._accepted]:
                return f"passed by {', '.join(more)}"
        return None if known[task.id].get("digest") == fingerprint(task) else "changed since"


def _read(task: Mapping[str, Any]) -> Mapping[str, Any]:
    used = task.get("used")
    if used is not None and not all(isinstance(path, str) for path in used):
        raise ValueError("'used' is not a list of paths")
    passed_by = task.get("passed_by", [])
    if not all(isinstance(name, str) for name in passed_by):
        raise ValueError("'passed_by' is not a list of attacks")
    return {
        **task,
        "used": None if used is None else tuple(used),
        "contested": task.get("contested") is True,
        "passed_by": passed_by,
    }
