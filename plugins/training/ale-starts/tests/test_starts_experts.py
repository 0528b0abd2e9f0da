"""The answers of experts, turn by turn, and the replays that they refuse."""

import json
from collections.abc import Sequence

import pytest

from ale.errors import ReplayError
from ale.testing.builders import turn
from ale.testing.starts import FINISH, SHELL, request
from ale.types import Completion, Message, Observation, ToolCall, ToolSpec, Turn
from ale_starts.experts import EpisodeExpert, SolutionExpert, exchanges

SOLUTION = SolutionExpert(commands=("ls", 'echo "é\n"'))


def at(number: int, tools: Sequence[ToolSpec] = (FINISH, SHELL)) -> Message | None:
    return SOLUTION.answer(request([turn("x")] * number, tools=tools))


def call(message: Message | None) -> ToolCall:
    assert message is not None
    assert message.role == "assistant"
    (only,) = message.tool_calls
    return only


def test_a_solution_takes_one_turn_per_command_and_a_closing_turn() -> None:
    assert call(at(0)) == ToolCall(id="call_0_0", name="shell", arguments='{"command": "ls"}')
    assert json.loads(call(at(1)).arguments) == {"command": 'echo "é\n"'}
    assert "é" in call(at(1)).arguments
    assert call(at(2)) == ToolCall(id="call_2_0", name="finish", arguments='{"summary": "Done."}')
    assert at(3) is None


def test_only_the_first_upto_turns_are_answered() -> None:
    short = SolutionExpert(commands=("ls", "pwd"), upto=1)
    assert short.answer(request([])) is not None
    assert short.answer(request([turn("x")])) is None


def tool(name: str, required: Sequence[str], **properties: str) -> ToolSpec:
    known = {key: {"type": value} for key, value in properties.items()}
    parameters = {"type": "object", "properties": known, "required": list(required)}
    return ToolSpec(name=name, description=name, parameters=parameters)


def test_the_tool_is_the_one_that_needs_a_command_and_nothing_else() -> None:
    remote = tool("remote", ["command", "host"], command="string", host="string")
    numbered = tool("numbered", ["command"], command="integer")
    bash = tool("bash", ["command"], command="string", timeout="integer")
    assert call(at(0, [FINISH, remote, numbered, bash])).name == "bash"


@pytest.mark.parametrize("tools", [[], [FINISH]])
def test_an_agent_without_such_a_tool_is_an_error(tools: list[ToolSpec]) -> None:
    with pytest.raises(ReplayError, match="text 'command'"):
        at(0, tools)


def test_required_texts_of_finish_are_filled_and_others_left_out() -> None:
    finish = tool("finish", ["a", "b", "n"], a="string", b="string", n="integer", c="string")
    assert json.loads(call(at(2, [SHELL, finish])).arguments) == {"a": "Done.", "b": "Done."}


def test_without_a_tool_to_finish_the_end_is_a_message() -> None:
    assert at(2, [SHELL]) == Message(role="assistant", content="Done.")


def recorded(*contents: str, id: str = "chatcmpl-1") -> list[Turn]:
    """An episode of one call a turn, each with what it gave back."""
    turns = []
    for number, content in enumerate(contents):
        made = ToolCall(id=f"{id}-{number}", name="shell", arguments=f'{{"command": "{number}"}}')
        message = Message(role="assistant", content=f"Turn {number}.", tool_calls=(made,))
        seen = Observation(call_id=made.id, tool="shell", content=content)
        turns.append(Turn(completion=Completion(message=message), observations=(seen,)))
    return turns


BEFORE = ("a.txt\n[exit code 0]", "/tmp/x1\n[exit code 0]", "[exit code 2]")


def expert(check: str = "exact", upto: int = 2) -> EpisodeExpert:
    found = exchanges(recorded(*BEFORE))
    return EpisodeExpert(exchanges=found, upto=upto, check=check)  # type: ignore[arg-type]


def test_an_episode_is_repeated_with_call_ids_made_anew() -> None:
    answer = expert().answer(request([]))
    assert answer is not None
    assert answer.content == "Turn 0."
    assert call(answer).id == "call_0_0"
    other = exchanges(recorded(*BEFORE, id="another-run"))
    assert EpisodeExpert(exchanges=other, upto=2, check="off").answer(request([])) == answer


def test_it_gives_no_answer_after_its_turns_once_the_last_observation_is_as_recorded() -> None:
    assert expert().answer(request(recorded(*BEFORE[:2]))) is None
    with pytest.raises(ReplayError):
        expert().answer(request(recorded(BEFORE[0], "/tmp/x2\n[exit code 0]")))


def test_what_is_observed_must_be_what_was_recorded_and_both_are_named() -> None:
    with pytest.raises(ReplayError) as raised:
        expert().answer(request(recorded("b.txt\n[exit code 0]")))
    assert "observation after turn 0" in str(raised.value)
    assert r"recorded  'a.txt\n[exit code 0]'" in str(raised.value)
    assert r"found     'b.txt\n[exit code 0]'" in str(raised.value)


def test_by_exit_codes_another_text_will_do_and_another_code_will_not() -> None:
    lenient = expert("exit_code")
    assert lenient.answer(request(recorded("b.txt\n[exit code 0]"))) is not None
    # What a program printed before is not how the command ended.
    assert lenient.answer(request(recorded("[exit code 1]\n[exit code 0]"))) is not None
    for other in ("a.txt\n[exit code 1]", "[timed out after 1 s; killed]", "a.txt"):
        with pytest.raises(ReplayError, match="exit code after turn"):
            lenient.answer(request(recorded(other)))


def test_unchecked_anything_will_do() -> None:
    assert expert("off").answer(request(recorded("anything"))) is not None


def test_an_observation_that_is_not_there_is_another_one() -> None:
    lost = [Turn(completion=recorded("x")[0].completion)]
    with pytest.raises(ReplayError, match="found     nothing"):
        expert().answer(request(lost))


def test_a_compacted_conversation_can_not_be_checked() -> None:
    asked = request([turn("x")])
    compacted = type(asked)(
        messages=asked.messages[:1], conversation=asked.conversation, turn=1, fresh_context=True
    )
    with pytest.raises(ReplayError, match="can't be checked"):
        expert().answer(compacted)
    assert expert("off").answer(compacted) is not None
