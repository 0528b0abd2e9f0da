"""The options of the middleware ``hints``."""

from pathlib import Path

from attrs import field, frozen, validators

from ale.plugin import doc, ge

_SOURCES = ("text", "file", "feedback")


@frozen(kw_only=True)
class HintOptions:
    """Adds a text to the system message: the same for all tasks, or one for each."""

    text: str | None = field(default=None, metadata=doc("Text for every task."))
    file: Path | None = field(
        default=None,
        metadata=doc("YAML or JSON: a mapping from task ids to texts; `*` is for all others."),
    )
    feedback: Path | None = field(
        default=None,
        metadata=doc(
            "Run directory: a task gets the feedback that was given on its episodes, newest first."
        ),
    )
    most: int = field(
        default=5,
        validator=validators.and_(validators.instance_of(int), ge(1)),
        metadata=doc("Maximum number of feedback texts that a task gets."),
    )
    heading: str = field(default="Hints:", metadata=doc("Line before the text."))

    def __attrs_post_init__(self) -> None:
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of 'text', 'file' and 'feedback', found {given}")
