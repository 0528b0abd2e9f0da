"""What a task says of its code, and the messages made from it."""

import re
from collections.abc import Sequence

from attrs import frozen

from ale.errors import AleError
from ale.types import Message, Task


@frozen(kw_only=True)
class Problem:
    """``metadata["python"]`` of a task. Hidden tests are in the options of its criteria alone."""

    setup: str = ""
    """Code that stands before the answer."""
    visible_tests: tuple[str, ...] = ()
    entry_point: str = ""
    """Name of the function that is asked for; empty where the goal alone says it."""

    @classmethod
    def of(cls, task: Task) -> "Problem":
        """What the task says; nothing if it is none about Python.

        Raises:
            AleError: the entry has another form.
        """
        found = task.metadata.get("python")
        if found is None:
            return cls()
        try:
            setup, entry_point = found.get("setup", ""), found.get("entry_point") or ""
            tests = found.get("visible_tests", ())
        except AttributeError:
            raise _malformed(task, found) from None
        texts = isinstance(tests, Sequence) and not isinstance(tests, str)
        if not texts or not all(isinstance(text, str) for text in (setup, entry_point, *tests)):
            raise _malformed(task, found)
        return cls(setup=setup, visible_tests=tuple(tests), entry_point=entry_point)


def _malformed(task: Task, found: object) -> AleError:
    return AleError(
        f"task '{task.id}': expected metadata.python with the texts setup and entry_point and a "
        f"list of texts visible_tests, found {found!r}"
    )


def fill(template: str, **values: str) -> str:
    """A template with each ``{name}`` of `values` replaced; other braces stay as they are."""
    names = "|".join(values)
    return re.sub(rf"\{{({names})\}}", lambda match: values[match[1]], template)


def first_messages(
    system_prompt: str, prompt: str, goal: str, problem: Problem
) -> tuple[Message, ...]:
    """The system's message, if there is one, and the user's."""
    tests = "\n".join(problem.visible_tests)
    values = {"goal": goal, "tests": tests, "entry_point": problem.entry_point}
    user = Message(role="user", content=fill(prompt, **values))
    if not system_prompt:
        return (user,)
    return Message(role="system", content=fill(system_prompt, **values)), user
