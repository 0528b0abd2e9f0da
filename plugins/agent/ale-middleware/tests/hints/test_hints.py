"""Hints from a text, a file and stored feedback."""

from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError
from ale.protocols import Middleware, MiddlewareContext
from ale.recording import Recording
from ale.runs import Registry
from ale.testing.middleware import MiddlewareContract
from ale.types import Conversation, Episode, Message, Task
from ale_middleware.hints.hints import build
from ale_middleware.hints.options import HintOptions

USER = Message(role="user", content="Do it.")


class TestHints(MiddlewareContract):
    @pytest.fixture
    def middleware(self) -> Middleware:
        return build(HintOptions(text="Look first."))


async def added(options: HintOptions, task: str) -> str:
    conversation = Conversation(episode_id="e", task_id=task, rollout=0, seed=0)
    context = MiddlewareContext(task=Task(id=task, goal="Do it."), conversation=conversation)
    messages = (await build(options).rewrite((USER,), context)).messages
    return messages[0].content if len(messages) > 1 else ""


async def test_a_file_has_a_text_for_each_task(tmp_path: Path) -> None:
    file = tmp_path / "hints.yaml"
    file.write_text("a: Only for a.\n'*': For the others.\n")
    assert await added(HintOptions(file=file), "a") == "Hints:\nOnly for a."
    assert await added(HintOptions(file=file, heading=""), "b") == "For the others."


@pytest.mark.parametrize(("text", "message"), [("[1]", "a mapping"), ("a: 1", "hints.yaml:1: a")])
def test_a_file_with_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "hints.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        build(HintOptions(file=file))


async def test_feedback_on_a_task_is_its_hint(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run", {"chunker": {"type": "interaction"}}, Registry())
    for rollout, text in enumerate(["Look first.", "Be brief.", "Look first."]):
        metadata: dict[str, Any] = {"feedback": [{"author": "", "text": text}]}
        episode = Episode(
            id=f"0-a-{rollout}", task_id="a", rollout=rollout, reward=0.0, metadata=metadata
        )
        recording.add(Task(id="a", goal="Do it."), episode)
    recording.close()
    options = HintOptions(feedback=tmp_path / "run")
    assert await added(options, "a") == "Hints:\n- Look first.\n- Be brief."
    assert (
        await added(HintOptions(feedback=tmp_path / "run", most=1), "a") == "Hints:\n- Look first."
    )
    assert await added(options, "b") == ""


@pytest.mark.parametrize("given", [{}, {"text": "a", "file": Path("b")}])
def test_exactly_one_source_is_needed(given: Any) -> None:
    with pytest.raises(ValueError, match="expected one of"):
        HintOptions(**given)
