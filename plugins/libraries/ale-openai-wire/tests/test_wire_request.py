"""A conversation as the fields of a request."""

from typing import Any

import pytest

from ale.testing.builders import conversation
from ale.types import Message, Sampling, ToolCall, ToolSpec
from ale_openai_wire import (
    effective,
    messages,
    samples_as_model,
    sampling_fields,
    tools,
    turn_seed,
)

CALL = ToolCall(id="call_1", name="add", arguments='{"a":  1')


def test_a_call_and_its_result_keep_id_and_text() -> None:
    sent = Message(role="assistant", tool_calls=(CALL,))
    result = Message(role="tool", content="2", tool_call_id="call_1")
    assert messages([sent, result]) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a":  1'},
                }
            ],
        },
        {"role": "tool", "content": "2", "tool_call_id": "call_1"},
    ]


def test_an_empty_answer_without_calls_stays_a_text() -> None:
    assert messages([Message(role="assistant")]) == [{"role": "assistant", "content": ""}]


def test_reasoning_goes_back_only_where_asked() -> None:
    sent = [Message(role="assistant", content="Hm.", reasoning="Why?")]
    assert messages(sent) == [{"role": "assistant", "content": "Hm."}]
    assert messages(sent, reasoning_field="reasoning")[0]["reasoning"] == "Why?"


def test_a_tool_is_a_function_with_its_schema() -> None:
    spec = ToolSpec(name="add", description="Add.", parameters={"type": "object"})
    function = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
    assert tools([spec]) == [{"type": "function", "function": function}]


def test_what_the_request_asks_for_goes_before_the_options() -> None:
    asked = Sampling(temperature=0.0, stop=("END",))
    options = Sampling(temperature=1.0, top_p=0.9, max_tokens=5)
    assert effective(asked, options) == Sampling(
        temperature=0.0, top_p=0.9, max_tokens=5, stop=("END",)
    )


def test_what_is_none_is_left_to_the_provider() -> None:
    assert sampling_fields(Sampling()) == {}
    assert sampling_fields(Sampling(max_tokens=3), max_tokens_field="max_completion_tokens") == {
        "max_completion_tokens": 3
    }


@pytest.mark.parametrize(
    "changes",
    [
        *({"temperature": value} for value in (None, 0, 0.9)),
        *({"top_p": value} for value in (None, 0.9)),
        {"top_k": 50},
        {"min_p": 0.1},
        {"presence_penalty": 1.5},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.05},
        {"logit_bias": {"7": -100}},
        {"min_tokens": 3},
        {"bad_words": ["no"]},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "add"}}},
        {"guided_choice": ["yes", "no"]},
    ],
)
def test_a_field_that_changes_probabilities_is_known(changes: dict[str, Any]) -> None:
    assert not samples_as_model({"temperature": 1, "top_p": 1, **changes})


def test_a_field_that_changes_nothing_is_no_hindrance() -> None:
    neutral = {"top_k": -1, "min_p": 0.0, "presence_penalty": 0, "repetition_penalty": 1.0}
    forms = {"tool_choice": "auto", "response_format": {"type": "text"}, "logit_bias": None}
    others = {"max_tokens": 5, "stop": ["END"], "seed": 1}
    assert samples_as_model({"temperature": 1.0, "top_p": 1, **neutral, **forms, **others})


def test_every_turn_has_a_seed_of_its_own_and_always_the_same() -> None:
    one = conversation(seed=5)
    assert turn_seed(one, 0) == turn_seed(conversation(seed=5), 0)
    assert len({turn_seed(conversation(seed=s), t) for s in range(20) for t in range(20)}) == 400
    assert 0 <= turn_seed(one, 0) < 2**31
