"""A fake of vLLM's routes for tokens, weights and adapters, over bigrams.

The shapes of its answers are those of a vLLM 0.32 that was asked.
"""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ale_servers.records import Held, Sampled, SampleRequest
from ale_servers.testing.bigram import CONTEXT, BigramServer
from ale_servers.testing.tables import read
from ale_servers.web import while_connected

_OTHERS = (
    *("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/pause"),
    *("/update_weight_version", "/finish_weight_update", "/resume", "/reset_prefix_cache"),
)


@pytest.fixture
def fake() -> "FakeVLLM":
    """A vLLM that has just started."""
    return FakeVLLM()


class FakeVLLM:
    """One vLLM; `app` answers."""

    def __init__(self, *, token_s: float = 0.001) -> None:
        self.sampler = BigramServer(token_s=token_s)
        self.labels: list[str] = ["default"]
        """By the sampler's version."""
        self.refuses: str | None = None
        """A route that answers with an error."""
        self._numbers = itertools.count(1)
        posts = [
            ("/inference/v1/generate", self._generate),
            ("/v1/chat/completions", self._chat),
            ("/abort_requests", self._abort),
            ("/v1/load_lora_adapter", self._load_adapter),
            ("/v1/unload_lora_adapter", self._unload_adapter),
            *((path, self._told) for path in _OTHERS),
        ]
        routes = [Route(path, do, methods=["POST"]) for path, do in posts]
        self.app = Starlette(routes=[Route("/health", self._health), *routes])

    async def _health(self, request: Request) -> Response:
        return Response()

    async def _told(self, request: Request) -> Response:
        """What is answered with a message alone."""
        path = request.url.path
        if path == self.refuses:
            return _error(500, "EngineCore encountered an issue.", "InternalServerError")
        if path == "/pause":
            await self.sampler.pause(request.query_params["mode"], 3600)  # type: ignore[arg-type]
        elif path == "/resume":
            await self.sampler.resume()
        elif path == "/update_weight_version":
            self.labels[-1] = (await request.json())["new_version"]
        elif path == "/update_weights":
            self._folder = Path((await request.json())["update_info"]["folder"])
        elif path == "/finish_weight_update":
            self.labels.append((await request.json())["weight_version"])
            self.sampler.table, self.sampler.version = read(self._folder), len(self.labels) - 1
        return JSONResponse({"message": "done"})

    async def _abort(self, request: Request) -> Response:
        ids = tuple((await request.json())["request_ids"])
        await self.sampler.abort(ids)
        return JSONResponse({"status": "aborted", "aborted": len(ids)})

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        asked = body["sampling_params"]
        ids = tuple(body["token_ids"])
        if len(ids) + 1 > CONTEXT:
            message = (
                f"The decoder prompt (length {len(ids)}) is longer than the maximum model length"
            )
            return _error(400, f"{message} of {CONTEXT}.", "BadRequestError")
        scores = "prompt_logprobs" in asked
        wanted = SampleRequest(
            id=f"generate-tokens-{body['request_id']}",
            prompt_ids=ids[:1] if scores else ids,
            forced_ids=ids[1:] if scores else (),
            max_tokens=asked["max_tokens"],
            temperature=1.0 if scores else asked["temperature"],
            stop_ids=tuple(asked.get("stop_token_ids", ())),
            seed=str(asked.get("seed", "")),
            adapter=body.get("model", ""),
        )

        async def answer() -> Response:
            done = await self.sampler.sample(wanted)
            return JSONResponse(self._scored(ids, done) if scores else self._answer(done))

        return await while_connected(request, answer())

    def _scored(self, ids: tuple[int, ...], done: Sampled) -> Any:
        if done.reason == "abort":
            choice = {"token_ids": [], "finish_reason": "abort"}
            return {"prompt_logprobs": None, "choices": [choice]}
        pairs = zip(ids[1:], done.logprobs, strict=True)
        given = [{str(token): {"logprob": value, "rank": 1}} for token, value in pairs]
        choice = {"token_ids": [0], "finish_reason": "length"}
        return {"prompt_logprobs": [None, *given], "choices": [choice]}

    def _answer(self, done: Sampled) -> Any:
        spans: list[dict[str, Any]] = []
        for at, version in enumerate(done.versions):
            label = self.labels[version]
            if not spans or spans[-1]["version"] != label:
                spans.append({"version": label, "start": at, "end": at})
            spans[-1]["end"] = at + 1
        pairs = zip(done.ids, done.logprobs, strict=True)
        content = [{"token_id": token, "logprob": value, "rank": 1} for token, value in pairs]
        choice = {
            "index": 0,
            "finish_reason": done.reason,
            "token_ids": list(done.ids),
            "weight_versions": spans or None,
            "logprobs": {"content": content},
        }
        return {"request_id": "x", "prompt_logprobs": None, "choices": [choice]}

    async def _load_adapter(self, request: Request) -> Response:
        body = await request.json()
        name, folder = body["lora_name"], Path(body["lora_path"])
        if name in self.sampler.adapters:
            return _error(400, f"The lora adapter '{name}' has already been loaded.", "InvalidUser")
        try:
            table = await asyncio.to_thread(read, folder)
        except ValueError as error:
            return _error(404, f"Loading lora {name} failed: {error}", "NotFoundError")
        # A version of the base, as real vLLM labels the tokens of adapters.
        held = Held(version=len(self.labels) - 1, digest="")
        self.sampler.adapters[name] = (table, held)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload_adapter(self, request: Request) -> Response:
        name = (await request.json())["lora_name"]
        if self.sampler.adapters.pop(name, None) is None:
            return _error(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        n = sum(len(each["content"]) for each in body["messages"])
        if n > CONTEXT:
            message = f"This model's maximum context length is {CONTEXT} tokens."
            return _error(400, message, "BadRequestError")
        most = min(body.get("max_tokens", 4), 4)
        message = {"role": "assistant", "content": "abcd"[:most]}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        usage = {"prompt_tokens": n, "completion_tokens": most, "total_tokens": n + most}
        return JSONResponse({"model": "policy", "choices": [choice], "usage": usage})


def _error(status: int, message: str, kind: str) -> Response:
    error = {"message": message, "type": kind, "param": None, "code": status}
    return JSONResponse({"error": error}, status)
