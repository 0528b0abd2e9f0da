"""An answer as a `Completion`: exact, and lenient where servers are known to differ."""

import json
from typing import Any

import pytest

from ale.types import TokenTrace, ToolCall, Usage
from ale_openai_wire import completion, from_mapping, read_answer


def body(message: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    made = {"content": "Paris.", **(message or {})}
    return {"choices": [{"message": made, "finish_reason": "stop", **choice}]}


def logprobs(*entries: tuple[str, float], with_bytes: bool = True) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": text,
                "logprob": value,
                "bytes": list(text.encode()) if with_bytes else None,
            }
            for text, value in entries
        ]
    }


def trace(answer: dict[str, Any]) -> TokenTrace | None:
    return completion(from_mapping(answer), turn=0, model="m", trace=True).tokens


def test_text_reasoning_usage_and_model_are_read() -> None:
    data = {
        **body({"reasoning_content": "Easy."}),
        "model": "big",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    made = completion(read_answer(json.dumps(data).encode()), turn=0, model="m")
    assert made.message.content == "Paris."
    assert made.message.reasoning == "Easy."
    assert made.usage == Usage(prompt_tokens=3, completion_tokens=2)
    assert made.model == "big"
    assert made.tokens is None


def test_vllm_calls_the_reasoning_reasoning() -> None:
    made = completion(from_mapping(body({"reasoning": "Easy."})), turn=0, model="m")
    assert made.message.reasoning == "Easy."


def test_nulls_where_lists_and_texts_are_expected_are_empty() -> None:
    answer = from_mapping({**body({"content": None, "tool_calls": None}), "usage": None})
    made = completion(answer, turn=0, model="m")
    assert made.message.content == ""
    assert made.message.tool_calls == ()
    assert made.usage == Usage()
    assert made.model == "m"


def test_a_content_in_parts_is_the_text_of_its_text_parts() -> None:
    parts = [{"type": "text", "text": "Par"}, {"type": "image"}, {"type": "text", "text": "is."}]
    made = completion(from_mapping(body({"content": parts})), turn=0, model="m")
    assert made.message.content == "Paris."


def test_arguments_stay_as_written_be_they_text_object_or_missing() -> None:
    data = (
        b'{"choices": [{"message": {"tool_calls": ['
        b'{"id": "a", "function": {"name": "f", "arguments": "{\\"x\\":  1"}},'
        b'{"id": "b", "function": {"name": "f", "arguments": {"x":  1}}},'
        b'{"function": {"name": "f", "arguments": null}},'
        b'{"id": "", "function": {"name": "f"}}]}}]}'
    )
    made = completion(read_answer(data), turn=4, model="m")
    assert made.message.tool_calls == (
        ToolCall(id="a", name="f", arguments='{"x":  1'),
        ToolCall(id="b", name="f", arguments='{"x":  1}'),
        ToolCall(id="call_4_2", name="f", arguments=""),
        ToolCall(id="call_4_3", name="f", arguments=""),
    )


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("abort", "other"),
        (None, "other"),
    ],
)
def test_reasons_keep_their_name_or_are_other(reason: str | None, kept: str) -> None:
    made = completion(from_mapping(body(finish_reason=reason)), turn=0, model="m")
    assert made.finish_reason == kept


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": 5}}]}', b"\xff"],
)
def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="answer"):
        read_answer(data)


def test_ids_and_one_logprob_each_are_a_trace() -> None:
    entries = logprobs(("Par", -0.25), ("is.", -0.5))
    answer = {**body(token_ids=[7, 8], logprobs=entries), "prompt_token_ids": [1, 2, 3]}
    assert trace(answer) == TokenTrace(
        prompt_ids=(1, 2, 3),
        output_ids=(7, 8),
        logprobs=(-0.25, -0.5),
        policy_versions=(0, 0),
        text_offsets=(0, 3),
    )


def test_sglang_has_the_prompt_in_the_choice() -> None:
    choice = {"token_ids": [7], "prompt_token_ids": [1, 2], "logprobs": logprobs(("Paris.", -0.1))}
    made = trace(body(**choice))
    assert made is not None
    assert made.prompt_ids == (1, 2)


@pytest.mark.parametrize(
    "lacking",
    [
        {"token_ids": None},
        {"prompt_token_ids": None},
        {"logprobs": None},
        {"logprobs": {"content": None}},
        {"token_ids": [7, 8]},
        {"logprobs": logprobs(("token_id:9", -0.1))},
    ],
    ids=["ids", "prompt", "logprobs", "content", "count", "other-ids"],
)
def test_a_trace_that_is_not_whole_is_none(lacking: dict[str, Any]) -> None:
    whole = {"token_ids": [7], "prompt_token_ids": [1], "logprobs": logprobs(("Paris.", -0.1))}
    assert trace(body(**whole)) is not None
    assert trace(body(**{**whole, **lacking})) is None


def test_tokens_named_by_id_are_checked_and_have_no_offsets() -> None:
    entries = logprobs(("token_id:7", -0.1))
    made = trace(body(token_ids=[7], prompt_token_ids=[1], logprobs=entries))
    assert made is not None
    assert made.text_offsets is None


def offsets(content: str, *pieces: bytes) -> tuple[int, ...] | None:
    entries = {"content": [{"token": "", "logprob": 0.0, "bytes": list(p)} for p in pieces]}
    ids = list(range(len(pieces)))
    made = trace(body({"content": content}, token_ids=ids, prompt_token_ids=[1], logprobs=entries))
    assert made is not None
    return made.text_offsets


def test_a_token_within_a_character_has_that_characters_index() -> None:
    snake = "🐍".encode()
    assert offsets("a🐍b", b"a", snake[:2], snake[2:], b"b") == (0, 1, 1, 2)


def test_tokens_after_the_content_are_at_its_end() -> None:
    assert offsets("Hi", b"Hi", b"<call>", b"{}") == (0, 2, 2)


def test_a_text_that_the_server_changed_has_no_offsets() -> None:
    assert offsets("Hi", b" Hi") is None


def test_a_function_call_of_the_first_kind_is_a_call() -> None:
    message = {"content": None, "function_call": {"name": "f", "arguments": '{"x": 1}'}}
    (call,) = completion(from_mapping(body(message)), turn=0, model="m").message.tool_calls
    assert (call.name, call.arguments) == ("f", '{"x": 1}')
