"""The scripted server, asked with nothing but the standard library."""

import email.utils
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ale.testing.openai_server import ScriptedServer, openai_server

Answer = tuple[int, http.client.HTTPMessage, bytes]


def post(server: ScriptedServer, *texts: str, timeout_s: float = 5, **body: Any) -> Answer:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)
    ]
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=timeout_s)
    try:
        data = json.dumps({"model": "m", "messages": messages, **body})
        connection.request("POST", f"{url.path}/chat/completions", data)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def text(answer: Answer) -> str:
    assert answer[0] == 200, answer
    content: str = json.loads(answer[2])["choices"][0]["message"]["content"]
    return content


def events(answer: Answer) -> list[str]:
    return [line[6:] for line in answer[2].decode().split("\n") if line.startswith("data: ")]


def test_a_list_is_played_in_the_order_of_arrival_and_then_refuses() -> None:
    with openai_server([{"text": "one"}, {"text": "two"}]) as server:
        assert [text(post(server, "a")), text(post(server, "b"))] == ["one", "two"]
        status, _, body = post(server, "c")
    assert status == 400
    assert "all 2 steps" in json.loads(body)["error"]["message"]


def test_a_mapping_answers_the_last_message_of_the_user() -> None:
    with openai_server({"hi": {"text": "hello"}, "*": {"text": "what?"}}) as server:
        assert text(post(server, "hi")) == "hello"
        assert text(post(server, "hi", "hello", "again")) == "what?"


def test_a_conversation_is_found_by_its_first_message_and_its_length() -> None:
    script = {
        "conversations": [
            {"match": "^copy", "steps": [{"text": "c0"}, {"text": "c1"}]},
            {"match": "sort", "steps": [{"text": "s0"}]},
        ]
    }
    with openai_server(script) as server:
        assert text(post(server, "copy it", "c0", "go on")) == "c1"
        assert text(post(server, "please sort")) == "s0"
        assert text(post(server, "copy and sort")) == "c0"
        assert text(post(server, "copy and sort")) == "c0"
        assert post(server, "sort", "s0", "go on")[0] == 400
        assert post(server, "neither")[0] == 400


def test_faults_before_a_step_are_played_once_each() -> None:
    before = [{"fault": 500}, {"fault": 429, "retry_after": 7}]
    script = {"conversations": [{"match": "", "steps": [{"before": before, "text": "done"}]}]}
    with openai_server(script) as server:
        assert post(server, "a")[0] == 500
        status, headers, _ = post(server, "a")
        assert (status, headers["Retry-After"]) == (429, "7")
        assert text(post(server, "a")) == "done"
        assert text(post(server, "a")) == "done"


def test_a_list_waits_for_the_faults_before_a_step() -> None:
    with openai_server([{"before": [{"fault": 500}], "text": "one"}, {"text": "two"}]) as server:
        assert post(server, "a")[0] == 500
        assert [text(post(server, "a")), text(post(server, "a"))] == ["one", "two"]


def test_retry_after_can_be_a_date_ahead() -> None:
    with openai_server([{"fault": 429, "retry_after": "date"}]) as server:
        headers = post(server, "a")[1]
    ahead = email.utils.parsedate_to_datetime(headers["Retry-After"]).timestamp() - time.time()
    assert 0 < ahead <= 2


def test_a_call_keeps_written_arguments_and_gets_an_id_of_its_own() -> None:
    calls = [{"name": "f", "arguments": "{bad"}, {"name": "g", "arguments": {"a": 1}, "id": "x"}]
    with openai_server({"*": {"calls": calls}}) as server:
        choice = json.loads(post(server, "a", "b", "c")[2])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [(c["id"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]] == [
        ("call_1_0", "{bad"),
        ("x", '{"a": 1}'),
    ]


def test_usage_counts_words_unless_it_is_given() -> None:
    given = {"prompt_tokens": 100, "completion_tokens": 7}
    with openai_server([{"text": "one two"}, {"text": "x", "usage": given}]) as server:
        assert json.loads(post(server, "a b c")[2])["usage"] == {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
        }
        assert json.loads(post(server, "a")[2])["usage"]["total_tokens"] == 107


def test_a_stream_is_the_answer_in_pieces() -> None:
    step = {"text": "one two three", "calls": [{"name": "f", "arguments": {"a": 1}}]}
    with openai_server([step]) as server:
        *chunks, done = events(
            post(server, "a", stream=True, stream_options={"include_usage": True})
        )
    assert done == "[DONE]"
    parsed = [json.loads(chunk) for chunk in chunks]
    deltas = [c["choices"][0]["delta"] for c in parsed if c["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == "one two three"
    parts = [part for d in deltas for part in d.get("tool_calls", ())]
    assert parts[0]["function"] == {"name": "f", "arguments": ""}
    assert "".join(p["function"]["arguments"] for p in parts) == '{"a": 1}'
    assert parsed[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert parsed[-1]["usage"]["completion_tokens"] == 5


def test_tokens_are_returned_on_request() -> None:
    tokens = {"prompt_ids": [1, 2], "ids": [7, 8], "logprobs": [-0.1, -0.2], "texts": ["a", "b"]}
    with openai_server({"*": {"text": "ab", "tokens": tokens}}) as server:
        plain = json.loads(post(server, "a")[2])
        asked = json.loads(post(server, "a", return_token_ids=True, logprobs=True)[2])
    assert "prompt_token_ids" not in plain
    assert set(plain["choices"][0]) == {"index", "message", "finish_reason"}
    assert asked["prompt_token_ids"] == [1, 2]
    assert asked["choices"][0]["token_ids"] == [7, 8]
    assert [e["logprob"] for e in asked["choices"][0]["logprobs"]["content"]] == [-0.1, -0.2]


@pytest.mark.parametrize("stream", [False, True])
def test_half_an_answer_ends_with_the_connection(stream: bool) -> None:
    with (
        openai_server([{"text": "a text of some length", "fault": "half"}]) as server,
        pytest.raises(http.client.IncompleteRead),
    ):
        post(server, "a", stream=stream)


def test_a_dropped_connection_has_no_answer() -> None:
    with (
        openai_server([{"fault": "drop"}]) as server,
        pytest.raises(http.client.RemoteDisconnected),
    ):
        post(server, "a")


async def test_silence_lasts_until_the_client_leaves() -> None:
    with openai_server([{"fault": "silence"}]) as server:
        with pytest.raises(TimeoutError):
            post(server, "a", timeout_s=0.2)
        assert await server.outcome(0) == "client_left"


@pytest.mark.parametrize("stream", [False, True])
def test_invalid_json_is_invalid(stream: bool) -> None:
    with openai_server([{"text": "x", "fault": "invalid_json"}]) as server:
        answer = post(server, "a", stream=stream)
    with pytest.raises(json.JSONDecodeError):
        json.loads(events(answer)[0] if stream else answer[2])


async def test_the_record_has_each_request_and_its_outcome() -> None:
    with openai_server([{"text": "x"}, {"fault": 401, "message": "no"}]) as server:
        post(server, "a", temperature=0.5)
        post(server, "b")
        first, second = server.requests()
        await server.outcome(1)
        assert server.outcomes() == ["answered", "answered"]
    assert first["body"]["temperature"] == 0.5
    assert (first["n"], second["n"]) == (0, 1)
    assert first["at"] < second["at"]
    assert first["method"] == "POST"


def test_the_server_ends_with_the_context() -> None:
    with openai_server([]) as server:
        pass
    with pytest.raises(ConnectionRefusedError):
        post(server, "a")


def test_the_command_line_takes_yaml_and_prints_the_url(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- text: hello\n")
    command = [sys.executable, "-m", "ale.testing.openai_server", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = urlsplit(process.stdout.readline().strip())
            connection = http.client.HTTPConnection(url.netloc, timeout=60)
            connection.request("GET", f"{url.path}/models")
            assert json.loads(connection.getresponse().read())["data"] == [{"id": "scripted"}]
            connection.close()
        finally:
            process.terminate()
    assert process.returncode == 0
