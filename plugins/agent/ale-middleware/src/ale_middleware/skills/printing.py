"""Skills as tables."""

from collections.abc import Sequence

from ale.text import table
from ale_figures.statistics import Estimate
from ale_middleware.skills.reviewing import Reviewed
from ale_middleware.skills.store import Skill, Store


def table_of(store: Store, *, retired: bool) -> str:
    """The skills of a store."""
    skills = store.skills(retired=retired)
    rows = [
        [skill.id, worth_of(store.worth(skill.id)), _state(skill), skill.text] for skill in skills
    ]
    return table(["skill", "worth", "state", "text"], rows)


def _state(skill: Skill) -> str:
    if skill.retired is not None:
        return f"retired: {skill.retired}"
    return "pending" if skill.pending else "used"


def reviewed(found: Sequence[Reviewed]) -> str:
    """The skills after a review."""
    rows = [[each.skill.id, worth_of(each.worth), each.verdict, each.skill.text] for each in found]
    return table(["skill", "worth", "verdict", "text"], rows)


def worth_of(worth: Estimate | None) -> str:
    """``+0.250 [+0.100, +0.400], 12 pairs``."""
    if worth is None:
        return "not measured"
    low, high = worth.low, worth.high
    between = "" if low is None or high is None else f" [{low:+z.3f}, {high:+z.3f}]"
    return f"{worth.mean:+z.3f}{between}, {worth.n} pairs"
