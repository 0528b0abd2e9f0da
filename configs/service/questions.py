"""Questions, and a criterion that wants a vowel in the answer: put your own in their place."""

from collections.abc import Iterator
from typing import Any

from attrs import field, frozen

from ale.plugin import Component, doc, hookimpl
from ale.types import CriterionSpec, Score, Task


@frozen(kw_only=True)
class Questions:
    """One task for each name."""

    names: tuple[str, ...] = field(metadata=doc("Who is spoken to."))

    def load(self) -> Iterator[Task]:
        """The tasks."""
        for name in self.names:
            goal = f"Say something to {name}."
            yield Task(id=name, goal=goal, criteria=(CriterionSpec(type="vowel"),))


class Vowel:
    """Wants a vowel in the last answer."""

    async def grade(self, task: Task, trajectory: Any, sandbox: Any) -> Score:
        """1 where it has one."""
        said = trajectory.turns[-1].completion.message.content
        passed = any(each in "aeiou" for each in said)
        return Score(criterion="vowel", passed=passed, value=float(passed), detail=said)


@hookimpl
def ale_task_sources() -> list[Component[Any, Any]]:
    """The source `questions`."""
    return [Component("questions", Questions, lambda o, c: o, summary="One for each name.")]


@hookimpl
def ale_criteria() -> list[Component[Any, Any]]:
    """The criterion `vowel`."""
    return [Component("vowel", None, lambda o, c: Vowel(), summary="Wants a vowel.")]
