"""The token trace: exact, additive, the same on every machine."""

from ale.testing.builders import conversation
from ale.types import CompletionRequest, Message, ToolCall
from ale_llm_scripted import tokens

GOAL = Message(role="user", content="ls!")
CALL = ToolCall(id="call_0_0", name="f", arguments="{}")
ANSWER = Message(role="assistant", content="né", tool_calls=(CALL,))


def request(*messages: Message, turn: int = 0, seed: int = 0) -> CompletionRequest:
    return CompletionRequest(messages=messages, conversation=conversation(seed=seed), turn=turn)


def test_a_token_is_a_byte_and_marks_have_tokens_of_their_own() -> None:
    trace = tokens.trace(request(GOAL), ANSWER)
    assert trace.prompt_ids == (257, *b"ls!", 262, 258)
    assert trace.output_ids == (*"né".encode(), 260, *b"f", 260, *b"{}", 262)


def test_text_offsets_count_characters_and_stay_at_the_end_for_calls() -> None:
    assert tokens.trace(request(GOAL), ANSWER).text_offsets == (0, 1, 1, 2, 2, 2, 2, 2, 2)


def test_reasoning_precedes_the_first_character() -> None:
    trace = tokens.trace(request(GOAL), Message(role="assistant", content="ab", reasoning="r"))
    assert trace.output_ids == (261, *b"r", 261, *b"ab", 262)
    assert trace.text_offsets == (0, 0, 0, 0, 1, 2)


def test_the_next_prompt_begins_with_this_prompt_and_output() -> None:
    first = tokens.trace(request(GOAL), ANSWER)
    observation = Message(role="tool", content="a.txt", tool_call_id="call_0_0")
    second = tokens.trace(request(GOAL, ANSWER, observation, turn=1), ANSWER)
    begun = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(begun)] == begun
    assert second.prompt_ids[len(begun) :] == (259, *b"a.txt", 262, 258)


def test_logprobs_are_one_per_token_and_the_same_on_every_machine() -> None:
    logprobs = tokens.trace(request(GOAL), ANSWER).logprobs
    assert len(logprobs) == 9
    assert all(-4 < logprob <= 0 for logprob in logprobs)
    # printf '0\0demo\0000\0000' | openssl dgst -shake128 -xoflen 18: d43d a46b 90b3 ...
    assert logprobs[:3] == (-0xD43D / 16384, -0xA46B / 16384, -0x90B3 / 16384)


def test_logprobs_differ_by_seed_and_turn() -> None:
    asked = [request(GOAL), request(GOAL, seed=1), request(GOAL, turn=1)]
    assert len({tokens.trace(each, ANSWER).logprobs for each in asked}) == 3


def test_a_count_is_the_length_of_what_is_counted() -> None:
    thought = Message(role="assistant", content="ab", reasoning="né", tool_calls=(CALL, CALL))
    for message in (GOAL, ANSWER, thought):
        assert tokens.count_body(message) == len(tokens.body_ids(message))
    assert tokens.count_prompt((GOAL, ANSWER)) == 16
    assert len(tokens.prompt_ids((GOAL, ANSWER))) == 16
