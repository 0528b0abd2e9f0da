"""Looks up the text of a task, and adds it to the system message."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from ale.middleware import with_system_text
from ale.protocols import MiddlewareContext, Rewritten
from ale.runs import RunReader
from ale.strict import read_texts
from ale.types import Message
from ale_middleware.hints.options import HintOptions

OTHERS = "*"
"""For tasks that have no text of their own."""


@frozen(kw_only=True)
class Hints:
    """Adds each task's text."""

    texts: Mapping[str, str]
    heading: str

    async def rewrite(self, head: tuple[Message, ...], context: MiddlewareContext) -> Rewritten:
        """With the text of the task, if it has one."""
        text = self.texts.get(context.task.id, self.texts.get(OTHERS))
        if not text:
            return Rewritten(messages=head, facts={"hint": None})
        added = f"{self.heading}\n{text}" if self.heading else text
        return Rewritten(messages=with_system_text(head, added), facts={"hint": text})


def build(options: HintOptions) -> Hints:
    """Read the texts.

    Raises:
        InputError: a file can't be read, or has something else in it.
    """
    if options.text is not None:
        texts: Mapping[str, str] = {OTHERS: options.text}
    elif options.file is not None:
        texts = read_texts(options.file)
    else:
        assert options.feedback is not None
        texts = _of_feedback(options.feedback, options.most)
    return Hints(texts=texts, heading=options.heading)


def _of_feedback(run: Path, most: int) -> Mapping[str, str]:
    """What was said of the episodes of a run, by task; each text once."""
    by_task: dict[str, dict[str, None]] = {}
    for episode in RunReader(run).episodes:
        for entry in episode.metadata.get("feedback", ()):
            texts = by_task.setdefault(episode.task_id, {})
            texts.pop(entry["text"], None)
            texts[entry["text"]] = None
    return {
        task: "\n".join(f"- {text}" for text in list(reversed(texts))[:most])
        for task, texts in by_task.items()
    }
