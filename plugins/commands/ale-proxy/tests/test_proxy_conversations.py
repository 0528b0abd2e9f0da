"""The conversations of a session: each message once, and each result with its call."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import msgspec
import pytest

from ale.runs import RunReader
from ale.testing.openai_server import openai_server
from ale.types import Completion, Message, ToolCall, ToolSpec, Trajectory, Turn, replace
from ale_proxy.apis import Answered, Asked
from ale_proxy.conversation import Turns
from ale_proxy.matching import Sought, tools_key

from .conftest import Proxied

Start = Callable[..., Any]
SHELL = ToolSpec(name="shell", description="", parameters={"type": "object"})
TOOLS: dict[str, Any] = {"tools": (SHELL,)}


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def call(id: str) -> ToolCall:
    return ToolCall(id=id, name="shell", arguments=f'{{"command": "echo {id}"}}')


def result(id: str, text: str = "") -> Message:
    return Message(role="tool", content=text or f"the output of {id}", tool_call_id=id)


class Agent:
    """Asks, and checks at the end that what was asked is what is rebuilt."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.sent: list[tuple[Message, ...]] = []

    def ask(self, messages: Sequence[Message], answer: Message, tools: Any = (SHELL,)) -> Message:
        asked = Asked(messages=tuple(messages), tools=tools)
        made = Answered(completion=Completion(message=answer))
        self.turns.add(asked.messages, asked, [made], 0.0)
        self.sent.append(asked.messages)
        return answer

    def check(self) -> list[Turn]:
        turns = self.turns.turns
        trajectory = Trajectory(turns=tuple(turns))
        assert sorted(self.turns.order) == list(range(len(self.sent)))
        for place, number in enumerate(self.turns.order):
            rebuilt = [replace(each, reasoning=None) for each in trajectory.messages(place)]
            assert rebuilt == list(self.sent[number])
            with_call = {c.id for c in turns[place].completion.message.tool_calls}
            assert {o.call_id for o in turns[place].observations} <= with_call
        return turns

    def size(self) -> int:
        return len(msgspec.json.encode(self.turns.turns))


def answer(text: str = "", *calls: str) -> Message:
    return Message(role="assistant", content=text, tool_calls=tuple(map(call, calls)))


class Talk:
    """A conversation with one call in each turn."""

    def __init__(self, agent: Agent, name: str = "") -> None:
        self.agent, self.name, self.n = agent, name, 0
        self.messages = [system("You are an agent. It is Monday."), user(f"Do the task {name}.")]

    def turn(self, *, sent: Sequence[Message] | None = None) -> None:
        id = f"c{self.name}-{self.n}"
        self.n += 1
        said = self.agent.ask(sent or self.messages, answer(f"Step {self.n}.", id))
        self.messages += [said, result(id, f"{id} gives {self.n}: " + "x" * 500)]


def side(talk: Talk) -> None:
    last = user(talk.messages[-1].content)
    title = [system("Write a title of five words."), last]
    talk.agent.ask(title, answer(f"Title {talk.n}"), tools=())


def clock(talk: Talk) -> None:
    talk.messages[0] = system(f"You are an agent. It is {talk.n} o'clock.")


def reminder(talk: Talk) -> None:
    reminded = [*talk.messages[:-1], replace(talk.messages[-1])]
    talk.turn(sent=[*reminded, user(f"<reminder>{talk.n} todos are open</reminder>")])


def again(talk: Talk) -> None:
    talk.agent.ask(talk.messages, answer(f"Another step {talk.n}.", f"r{talk.n}"))


def cleared(talk: Talk) -> None:
    for i, message in enumerate(talk.messages[:-4]):
        if message.role == "tool":
            talk.messages[i] = replace(message, content="[cleared]")


def judged(talk: Talk) -> None:
    asked = [system("Judge."), *talk.messages[1:], user("Is it done?")]
    talk.agent.ask(asked, answer("No."), tools=())


def suggested(talk: Talk) -> None:
    talk.agent.ask([*talk.messages, user("Suggest what to say next.")], answer("Go on."))


HABITS = [side, clock, reminder, again, cleared, judged, suggested]


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.__name__)
def test_what_is_stored_grows_with_the_conversation_and_not_with_its_square(
    habit: Callable[[Talk], None],
) -> None:
    sizes = []
    for n_turns in (25, 100):
        agent = Agent()
        talk = Talk(agent)
        for _ in range(n_turns):
            talk.turn()
            habit(talk)
        turns = agent.check()
        sizes.append(agent.size())
    assert sizes[1] < 6 * sizes[0], "16 times as much would be its square"
    results = [o for turn in turns for o in turn.observations if o.call_id.startswith("c")]
    assert len(results) >= 99


def test_any_habits_together_are_rebuilt_exactly() -> None:
    for seed in range(12):
        rng = random.Random(seed)
        agent = Agent()
        talks = [Talk(agent, name) for name in "abc"]
        for _ in range(60):
            talk = rng.choice(talks)
            talk.turn()
            if rng.random() < 0.7:
                rng.choice(HABITS)(talk)
        turns = agent.check()
        whole = len(msgspec.json.encode([talk.messages for talk in talks]))
        assert agent.size() < 8 * whole + 400 * len(turns)


def test_what_has_most_of_a_request_is_continued() -> None:
    agent = Agent()
    talk = Talk(agent)
    for _ in range(3):
        talk.turn()
    talk.messages[3] = replace(talk.messages[3], content="[cleared]")
    suggested(talk)
    talk.turn()
    agent.check()
    turn, after = agent.turns.raw(4)
    assert after == 3, "the side request, which had the cleared result too"
    assert [message.content for each in turn.replaced for message in each.messages] == []


def test_results_in_another_order_are_with_their_calls() -> None:
    agent = Agent()
    asked = [system("s"), user("u")]
    said = agent.ask(asked, answer("", "one", "two"))
    agent.ask([*asked, said, result("two"), result("one")], answer("Done."))
    first, second = agent.check()
    assert [(o.call_id, o.content) for o in first.observations] == [
        ("one", "the output of one"),
        ("two", "the output of two"),
    ]
    assert not second.fresh_context


def test_parallel_sub_agents_are_each_one_conversation() -> None:
    agent = Agent()
    talks = [Talk(agent, name) for name in "abcd"]
    for _ in range(5):
        for talk in talks:
            talk.turn()
    turns = agent.check()
    assert [turn.fresh_context for turn in turns] == [i % 5 == 0 for i in range(20)]
    assert [turn.completion.message.tool_calls[0].id for turn in turns[:5]] == [
        f"ca-{i}" for i in range(5)
    ]


def test_an_answer_that_the_client_has_changed_is_still_continued() -> None:
    agent = Agent()
    asked = [system("s"), user("u")]
    agent.ask(asked, answer("<think>Hm, hm.</think>\n\nIt is 4, as I have worked out above."))
    shown = answer("It is 4, as I have worked out above.")
    agent.ask([*asked, shown, user("And 3+3?")], answer("6"))
    _, second = agent.check()
    assert not second.fresh_context
    assert second.replaced[0].messages == (shown,)


def test_few_shots_are_no_continuation() -> None:
    agent = Agent()
    shots = [system("s"), user("1+1"), answer("2"), user("2+2"), answer("4")]
    agent.ask([*shots, user("3+3")], answer("6"))
    agent.ask([*shots, user("5+5")], answer("10"))
    agent.check()
    match = agent.turns.match
    assert [turn.fresh_context for turn in agent.turns.turns] == [True, False]
    third = (*shots, user("9+9"))
    assert match(Sought(third, tools_key((SHELL,)))) is None


def test_a_short_answer_that_is_given_elsewhere_too_is_no_continuation() -> None:
    agent = Agent()
    agent.ask([system("s"), user("2+2")], answer("4"))
    other = (system("another"), user("1+3"), answer("4"), user("9+9"))
    assert agent.turns.match(Sought(other, tools_key((SHELL,)))) is None
    own = (system("another"), user("2+2"), answer("4"), user("9+9"))
    assert agent.turns.match(Sought(own, tools_key((SHELL,)))) is not None


def test_a_compacted_conversation_begins_anew() -> None:
    agent = Agent()
    talk = Talk(agent)
    for _ in range(10):
        talk.turn()
    talk.messages = [talk.messages[0], user("Summary: ten steps were done."), *talk.messages[-2:]]
    talk.turn()
    turns = agent.check()
    assert [turn.fresh_context for turn in turns] == [True, *[False] * 9, True]


async def chat(url: str, messages: list[Any], **more: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as asking:
        body = {"model": "m", "messages": messages, **more}
        answered = await asking.post(f"{url}/chat/completions", json=body)
    message: dict[str, Any] = answered.raise_for_status().json()["choices"][0]["message"]
    return message


async def test_side_requests_through_the_proxy_store_each_message_once(start: Start) -> None:
    def steps(n: int) -> list[Any]:
        return [{"calls": [{"name": "shell", "arguments": {}, "id": f"c{i}"}]} for i in range(n)]

    script = {
        "conversations": [
            {"match": "The task", "steps": steps(30)},
            {"match": "title", "steps": [{"text": f"Title {i}"} for i in range(30)]},
        ]
    }
    messages: list[Any] = [{"role": "user", "content": "The task"}]
    with openai_server(script) as server:
        proxy: Proxied = await start(server.url)
        url = proxy.url.replace("/v1", "/s/run-1@the-task/v1")
        for i in range(30):
            message = await chat(url, messages)
            messages.append({k: v for k, v in message.items() if v is not None})
            output = f"{i}: " + "y" * 2000
            messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": output})
            title = [{"role": "user", "content": f"A title for {output}"}]
            await chat(url, title)
        proxy.sessions.end_all()
    (episode,) = proxy.episodes()
    assert (episode.task_id, episode.metadata["session"]) == ("the-task", "run-1")
    calls = [turn for turn in episode.trajectory.turns if turn.completion.message.tool_calls]
    for i, turn in enumerate(calls[:-1]):
        (observed,) = turn.observations
        assert (observed.call_id, observed.content[:3].strip(": ")) == (f"c{i}", str(i))
    conversation = len(msgspec.json.encode(messages)) + 30 * 2000
    stored = (RunReader(proxy.path).path / "episodes.jsonl").stat().st_size
    assert stored < 1.6 * conversation
