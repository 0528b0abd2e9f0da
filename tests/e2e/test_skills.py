"""Skills through the commands: measured by a run with and without them, kept or retired."""

from typing import Any

PATIENCE_S = 300.0
HELPFUL, USELESS = "Leave a mark named done.", "Stay calm."
READER = f'''
"""A model that does what its system message says."""

from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakePolicy
from ale.types import Message, ToolCall


def answer(request):
    told = any("{HELPFUL}" in message.content for message in request.messages)
    name, given = ("finish", '{{"summary": "done"}}')
    if told and request.turn == 0:
        name, given = ("shell", '{{"command": "touch done"}}')
    call = ToolCall(id=f"call-{{request.turn}}", name=name, arguments=given)
    return Message(role="assistant", tool_calls=(call,))


class Reader(FakePolicy):
    async def aclose(self):
        pass


@hookimpl
def ale_llms():
    return [Component("reader", None, lambda o, c: Reader(answer), summary="Reads.")]
'''


def ale(workshop: Any, *arguments: str) -> str:
    return str(workshop.succeeds(*arguments, timeout_s=PATIENCE_S).out)


def test_a_run_shows_which_skill_helps_and_the_other_is_retired(workshop: Any) -> None:
    n = 10
    for number in range(n):
        workshop.task(f"t{number}", goal=f"Do t{number} of the chores.")
    store = ("--store", "skills.db")
    goal = ("--goal", "Do one of the chores.")
    helpful = ale(workshop, "skills", "add", *store, *goal, HELPFUL).strip()
    useless = ale(workshop, "skills", "add", *store, *goal, USELESS).strip()
    workshop.write("reader.py", READER)
    workshop.config(
        plugins=["reader.py"],
        llm={"type": "reader"},
        middleware=[{"type": "skills", "store": "skills.db"}],
        run={"rollouts": 4},
    )
    ale(workshop, "run", "run.yaml")
    rewards = [each["reward"] for each in workshop.episodes().values()]
    assert sum(rewards) == len(rewards) / 2, "each skill is left out of half of the rollouts"
    reviewed = ale(workshop, "skills", "review", str(workshop.run), *store).splitlines()
    verdicts = {skill: line for line in reviewed for skill in (helpful, useless) if skill in line}
    assert "+1.000" in verdicts[helpful]
    assert "helps" in verdicts[helpful]
    assert "retired" in verdicts[useless]
    assert useless not in ale(workshop, "skills", "list", *store)
    ale(workshop, "run", "run.yaml")
    again = workshop.episodes(workshop.runs[-1]).values()
    offered = {
        skill["id"] for each in again for skill in each["metadata"]["middleware"][0]["skills"]
    }
    assert offered == {helpful}
