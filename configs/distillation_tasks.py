"""Two questions. What the right answer is, nothing that the model reads tells."""

from collections.abc import Iterator

from ale.plugin import Component, hookimpl
from ale.types import CriterionSpec, Task

GATES = {"garden": "red", "street": "green"}


class Gates:
    """Asks for the colour of each gate."""

    def load(self) -> Iterator[Task]:
        """Both."""
        for place, colour in GATES.items():
            options = {"expected": colour, "answer": "message", "take": "all"}
            yield Task(
                id=place,
                goal=f"Which gate leads to the {place}?",
                criteria=(CriterionSpec(type="exact_match", options=options),),
            )


@hookimpl
def ale_task_sources() -> list[Component[None, Gates]]:
    """Register ``gates``."""
    return [Component("gates", None, lambda options, context: Gates(), summary="Two gates.")]
