"""``single-shot`` asks once and runs nothing."""

from typing import Any

from ale.testing import builders
from ale.testing.agent import answer, call


async def test_one_answer_ends_the_episode_whatever_the_task(play: Any) -> None:
    task = builders.task(goal="What is 6 times 7?")
    played = await play(answer("42"), agent="single-shot", task=task)
    assert (played.stop.reason, played.stop.detail) == ("finished", "42")
    assert played.prompt_of(0) == "What is 6 times 7?"
    assert played.observations == []


async def test_code_is_not_run(play: Any) -> None:
    code = "```python\nopen('made', 'w')\n```"
    played = await play(answer(code), agent="single-shot")
    assert list(played.folder.iterdir()) == []


async def test_tests_can_be_shown_in_its_prompt(play: Any) -> None:
    played = await play(
        answer("x"), agent="single-shot", system_prompt="Think.", prompt="{goal}\n{tests}"
    )
    assert [m.content for m in played.llm.requests[0].messages] == [
        "Think.",
        "Add two numbers.\nassert add(1, 2) == 3",
    ]


async def test_a_call_that_the_model_invents_is_recorded_with_an_error(play: Any) -> None:
    played = await play(call("shell", command="ls"), agent="single-shot")
    assert played.observations[0].error == "there are no tools"
    assert (played.stop.reason, len(played.llm.requests)) == ("max_turns", 1)
