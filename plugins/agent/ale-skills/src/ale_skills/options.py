"""The options of the middleware ``skills``."""

from pathlib import Path

from attrs import field, frozen, validators

from ale.plugin import doc, ge, le


@frozen(kw_only=True)
class SkillOptions:
    """Adds the skills that fit a task to the system message."""

    store: Path = field(metadata=doc("SQLite file that `ale skills` writes."))
    top_k: int = field(
        default=3, validator=ge(1), metadata=doc("Skills that a task gets, at most.")
    )
    threshold: float = field(
        default=0.1,
        validator=validators.and_(ge(0), le(1)),
        metadata=doc("Least share of the words of the task's goal that a skill must have too."),
    )
    measure: bool = field(
        default=True,
        metadata=doc(
            "Leave each skill out of half of a task's rollouts, so that `ale skills review` can "
            "say what it is worth."
        ),
    )
    heading: str = field(
        default="What was learned from earlier work:", metadata=doc("Line before the skills.")
    )
