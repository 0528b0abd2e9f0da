"""The kit for models over HTTP, run against a made-up API that is not OpenAI's."""

import asyncio
import email.utils
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest

from ale.errors import ContextLengthError, LLMError
from ale.protocols import LLM
from ale.testing.llm import Connect, LLMServerContract
from ale.testing.openai_server import ScriptedServer, scripted_server
from ale.testing.wire import Step, Wire
from ale.types import (
    Completion,
    CompletionRequest,
    FinishReason,
    LLMCapabilities,
    Message,
    ToolCall,
    Usage,
)

# -- the API: POST .../ask with {"turns": [{"by", "says"}], "tools": [...], "limit": 5}


class AskWire(Wire):
    """How the made-up API writes requests and answers."""

    path = "/ask"

    def messages(self, body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        return [{"role": turn["by"], "content": turn["says"]} for turn in body["turns"]]

    def answer(self, step: Step, body: Mapping[str, Any]) -> Mapping[str, Any]:
        usage = step.get("usage", {"prompt_tokens": 9, "completion_tokens": 1})
        calls = step.get("calls", ())
        return {
            "says": step.get("text", ""),
            "thinks": step.get("reasoning"),
            "does": [{"tool": c["name"], "with": c["arguments"], "ref": c["id"]} for c in calls],
            "ended": step.get("finish_reason", "tool_calls" if calls else "stop"),
            "cost": [usage["prompt_tokens"], usage["completion_tokens"]],
        }

    def error(self, step: Step) -> Mapping[str, Any]:
        return {"oops": step.get("message", str(step["fault"]))}


# -- a provider for it, with nothing but the standard library

TRANSIENT = {429, 500, 502, 503}


class AskLLM:
    """Asks again up to three times, as the kit demands."""

    capabilities = LLMCapabilities()

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key

    async def complete(self, request: CompletionRequest) -> Completion:
        for attempt in range(3):
            try:
                return await self._attempt(request)
            except LLMError as error:
                if not error.transient or attempt == 2:
                    raise
                wait_s = error.retry_after_s if isinstance(error, BusyError) else 0.0
                await asyncio.sleep(wait_s)
        raise AssertionError("not reached")

    async def aclose(self) -> None:
        pass

    async def _attempt(self, request: CompletionRequest) -> Completion:
        try:
            async with asyncio.timeout(0.7):
                status, headers, data = await self._post(written(request))
            body = json.loads(data)
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            raise LLMError(f"{self._url}: {error!r}", transient=True) from error
        if status == 200:
            return read(body)
        text = f"status {status}: {body['oops']}".replace(self._key, "***")
        if body["oops"] == "context_length":
            raise ContextLengthError(text)
        if status in TRANSIENT:
            raise BusyError(text, waits(headers.get("retry-after", "0")))
        raise LLMError(text)

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        target = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(target.hostname, target.port, limit=1 << 16)
        try:
            data = json.dumps(body).encode()
            head = f"POST {target.path}/ask HTTP/1.1\r\nkey: {self._key}\r\n"
            writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
            body_bytes = await reader.readexactly(int(headers["content-length"]))
            return int(first.split()[1]), headers, body_bytes
        finally:
            writer.close()


class BusyError(LLMError):
    """The server asks to wait."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, transient=True)
        self.retry_after_s = retry_after_s


def waits(value: str) -> float:
    """Seconds of a Retry-After header."""
    if value.replace(".", "").isdigit():
        return float(value)
    return email.utils.parsedate_to_datetime(value).timestamp() - time.time()


def written(request: CompletionRequest) -> Mapping[str, Any]:
    turns = [{"by": message.role, "says": message.content} for message in request.messages]
    limit = request.sampling.max_tokens
    return {"turns": turns, "tools": [tool.name for tool in request.tools], "limit": limit}


def read(body: Mapping[str, Any]) -> Completion:
    calls = tuple(
        ToolCall(id=each["ref"], name=each["tool"], arguments=json.dumps(each["with"]))
        for each in body["does"]
    )
    known: Sequence[FinishReason] = get_args(FinishReason)
    return Completion(
        message=Message(
            role="assistant", content=body["says"], reasoning=body["thinks"], tool_calls=calls
        ),
        finish_reason=next((reason for reason in known if reason == body["ended"]), "other"),
        usage=Usage(prompt_tokens=body["cost"][0], completion_tokens=body["cost"][1]),
    )


class TestOtherAPI(LLMServerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        def connect(url: str, key: str) -> LLM:
            return AskLLM(url, key)

        return connect

    @classmethod
    def serve(cls, script: Any) -> AbstractContextManager[ScriptedServer]:
        return scripted_server(script, wire=f"{__name__}:AskWire")
