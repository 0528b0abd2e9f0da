"""The badge that a validation leaves beside tasks, and the task source that asks for it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import InputError
from ale.plugin import BuildContext, doc
from ale.protocols import TaskSource
from ale.runs import fingerprint
from ale.types import Task

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
) -> None:
    """Write which tasks are valid, each with its digest, and whether they were attacked.

    Args:
        untried: attacks that were not tried, by task; None if none was tried on any.

    Raises:
        OSError: the file can't be written.
    """
    found = {
        task.id: {
            "digest": fingerprint(task),
            "valid": valid[task.id],
            "attacks_not_tried": "all" if untried is None else [*untried.get(task.id, ())],
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


@frozen(kw_only=True)
class ValidatedOptions:
    """Tasks of another source that have passed `ale validate`."""

    tasks: Any = field(metadata=doc("The task source.", component="tasks"))
    badge: Path = field(metadata=doc("The file that `ale validate --badge` has written."))


class ValidatedTasks:
    """The tasks of a source, which must all be valid and unchanged since they were validated."""

    def __init__(self, options: ValidatedOptions, context: BuildContext) -> None:
        self._source: TaskSource = options.tasks
        self._badge = options.badge

    def load(self) -> Iterator[Task]:
        """The source's tasks, in its order.

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
                hint=f"ale validate CONFIG --badge {self._badge}",
            )
        yield from tasks

    def _known(self) -> Mapping[str, Any]:
        expected = "what `ale validate --badge FILE` writes"
        if not self._badge.exists():
            hint = f"ale validate CONFIG --badge {self._badge}"
            message = "there is no such file"
            raise InputError.of(message, file=str(self._badge), expected=expected, hint=hint)
        try:
            found = json.loads(self._badge.read_text())["tasks"]
            return {str(key): {**each} for key, each in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"can't be read: {error}"
            raise InputError.of(message, file=str(self._badge), expected=expected) from None

    @staticmethod
    def _refused(task: Task, known: Mapping[str, Any]) -> str | None:
        if task.id not in known:
            return "never validated"
        if not known[task.id].get("valid"):
            return "found not valid"
        return None if known[task.id].get("digest") == fingerprint(task) else "changed since"
