"""The steps of a Harbor task: each with an instruction, tests and limits of its own.

Source: harbor 0.25, `trial/multi_step.py` and `verifier/verifier.py`.
"""

import re
from collections.abc import Callable, Mapping

from attrs import frozen

from ale.types import Task, replace
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.values import Values, number_of, plain_name

_NO_NAME = re.compile(r"""[<>:"/\\|?*\x00-\x1f\x7f]|[. ]$|^\s*$""")
"""As in Harbor: what can't be the name of a folder everywhere."""
_SETUP = "bash ./setup.sh"


@frozen(kw_only=True)
class Part:
    """A part of a task with its own instruction and tests: a step, or the whole task."""

    folder: Folder
    """The folder that holds them."""
    name: str = ""
    """Name of the step; empty for the whole task."""
    number: int = 0
    """From 0."""
    values: Values
    """The step's own table, with the tables ``agent`` and ``verifier``."""

    @property
    def id(self) -> str:
        """The name, as it can stand in the name of a file everywhere."""
        made = plain_name(self.name)
        return made if made == self.name else f"{made}-{self.number + 1}"

    @property
    def agent(self) -> Values:
        """Its agent's table."""
        return self.values.table("agent")

    @property
    def verifier(self) -> Values:
        """Its verifier's table."""
        return self.values.table("verifier")


def parts(folder: Folder, root: Values) -> list[Part]:
    """The steps of a task, in their order; a step without a folder or a name is noted."""
    found: list[Part] = []
    for values in root.tables("steps"):
        name = values.values.get("name")
        if not isinstance(name, str) or _NO_NAME.search(name):
            values.refuse("name", "expected the name of a folder in steps/")
            continue
        if any(name == other.name for other in found):
            values.refuse("name", f"'{name}' is already the name of a step")
        own = folder.folder("steps").folder(name)
        found.append(Part(folder=own, name=name, number=len(found), values=values))
    return found


def prepared(part: Part) -> tuple[str | None, tuple[str, ...]]:
    """The folder whose content goes to the workspace before a step, and what is run then."""
    if not part.folder.has_folder("workdir"):
        return None, ()
    workdir = part.folder.folder("workdir")
    return workdir.path, (_SETUP,) if workdir.has_file("setup.sh") else ()


def least(values: Values) -> Mapping[str, float]:
    """Rewards that a step needs if others are to follow it."""
    found = values.values.get("min_reward")
    table = found if isinstance(found, Mapping) else {} if found is None else {"reward": found}
    bounds = {str(name): number_of(value) for name, value in table.items()}
    for name, bound in bounds.items():
        if bound is None:
            values.refuse("min_reward", f"expected a number for '{name}', found {table[name]!r}")
    return {name: bound for name, bound in bounds.items() if bound is not None}


def joined(task: Task, root: Values, made: Callable[[Part], Task], found: list[Part]) -> Task:
    """A task with its steps.

    Args:
        task: all that the steps have in common.
        made: reads one step.
    """
    strategy = root.choice("multi_step_reward_strategy", ("mean", "final"), "mean")
    steps = tuple(made(part) for part in found)
    whole = "\n\n".join(
        f"{part.name}: {step.goal.strip()}" for part, step in zip(found, steps, strict=True)
    )
    return replace(
        task, goal=whole, steps=steps, steps_reward="last" if strategy == "final" else "mean"
    )
