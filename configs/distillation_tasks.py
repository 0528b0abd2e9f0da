"""Two questions. What the right answer is, nothing that the model reads tells."""

from collections.abc import Iterator

from ale.plugin import Component, hookimpl
from ale.types import CriterionSpec, Task

DOORS = {"garden": "red", "street": "green"}


class Doors:
    """Asks for the colour of each door."""

    def load(self) -> Iterator[Task]:
        """Both."""
        for place, colour in DOORS.items():
            options = {"expected": colour, "answer": "message", "take": "all"}
            yield Task(
                id=place,
                goal=f"Which door leads to the {place}?",
                criteria=(CriterionSpec(type="exact_match", options=options),),
            )


@hookimpl
def ale_task_sources() -> list[Component[None, Doors]]:
    """Register ``doors``."""
    return [Component("doors", None, lambda options, context: Doors(), summary="Two doors.")]
