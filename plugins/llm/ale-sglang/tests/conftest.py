"""A fake of SGLang's routes, over bigrams: from its sources, never compared with a real one."""

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ale_servers.records import Held, SampleRequest
from ale_servers.testing.bigram import CONTEXT, BigramServer
from ale_servers.testing.tables import read
from ale_servers.web import while_connected


@pytest.fixture
def fake() -> "FakeSGLang":
    """An SGLang that has just started."""
    return FakeSGLang()


class FakeSGLang:
    """One SGLang; `app` answers."""

    def __init__(self, *, token_s: float = 0.001) -> None:
        self.sampler = BigramServer(token_s=token_s)
        self.refuses: str | None = None
        """A route that answers with an error."""
        posts = [
            ("/generate", self._generate),
            ("/v1/chat/completions", self._chat),
            ("/abort_request", self._abort),
            ("/pause_generation", self._pause),
            ("/continue_generation", self._continue),
            ("/flush_cache", self._flush),
            ("/update_weights_from_disk", self._update),
            ("/load_lora_adapter", self._load_adapter),
            ("/unload_lora_adapter", self._unload_adapter),
        ]
        routes = [Route(path, do, methods=["POST"]) for path, do in posts]
        self.app = Starlette(routes=[Route("/health", self._health), *routes])

    async def _health(self, request: Request) -> Response:
        return Response()

    async def _pause(self, request: Request) -> Response:
        await self.sampler.pause((await request.json())["mode"], 3600)
        return JSONResponse({"message": "Generation paused successfully.", "status": "ok"})

    async def _continue(self, request: Request) -> Response:
        await self.sampler.resume()
        return JSONResponse({"message": "Generation continued successfully.", "status": "ok"})

    async def _abort(self, request: Request) -> Response:
        await self.sampler.abort(((await request.json())["rid"],))
        return Response()

    async def _flush(self, request: Request) -> Response:
        busy = bool(self.sampler._jobs)
        return PlainTextResponse("Cache flushed." if not busy else "busy", 400 if busy else 200)

    async def _update(self, request: Request) -> Response:
        if self.refuses == request.url.path:
            message = {
                "success": False,
                "message": "Failed to get weights",
                "num_paused_requests": 0,
            }
            return JSONResponse(message, 400)
        body = await request.json()
        assert not self.sampler._jobs, "a request would be sampled from two weights"
        self.sampler.table = read(Path(body["model_path"]))
        return JSONResponse({"success": True, "message": "Succeeded.", "num_paused_requests": 0})

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        asked = body["sampling_params"]
        ids = tuple(body["input_ids"])
        if len(ids) >= CONTEXT:
            message = f"The input ({len(ids)} tokens) is longer than the model's context length"
            return JSONResponse({"error": {"message": f"{message} ({CONTEXT} tokens)."}}, 400)
        start = body.get("logprob_start_len")
        wanted = SampleRequest(
            id=body["rid"],
            prompt_ids=ids if start is None else ids[: start + 1],
            forced_ids=() if start is None else ids[start + 1 :],
            max_tokens=asked["max_new_tokens"],
            temperature=1.0 if start is not None else asked["temperature"],
            stop_ids=tuple(asked.get("stop_token_ids", ())),
            seed=str(asked.get("sampling_seed", "")),
            adapter=body.get("lora_path", ""),
        )

        async def answer() -> Response:
            done = await self.sampler.sample(wanted)
            pairs = zip(done.logprobs, done.ids, strict=True)
            given: list[Any] = [[value, token, None] for value, token in pairs]
            about: dict[str, Any] = {"id": wanted.id, "finish_reason": {"type": done.reason}}
            if done.reason == "abort" and start is not None:
                return JSONResponse({"text": "", "output_ids": [], "meta_info": about})
            if start is None:
                about["output_token_logprobs"] = given
                return JSONResponse({"text": "", "output_ids": done.ids, "meta_info": about})
            about["input_token_logprobs"] = [[None, ids[start], None], *given]
            about |= {
                "finish_reason": {"type": "length"},
                "output_token_logprobs": [[0.0, 0, None]],
            }
            return JSONResponse({"text": "", "output_ids": [0], "meta_info": about})

        return await while_connected(request, answer())

    async def _load_adapter(self, request: Request) -> Response:
        body = await request.json()
        try:
            table = read(Path(body["lora_path"]))
        except ValueError as error:
            return JSONResponse({"success": False, "error_message": str(error)}, 400)
        self.sampler.adapters[body["lora_name"]] = (table, Held(version=0, digest=""))
        return JSONResponse({"success": True, "loaded_adapters": {}})

    async def _unload_adapter(self, request: Request) -> Response:
        if self.sampler.adapters.pop((await request.json())["lora_name"], None) is None:
            return JSONResponse({"success": False, "error_message": "it is not loaded"}, 400)
        return JSONResponse({"success": True, "loaded_adapters": {}})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        n = sum(len(each["content"]) for each in body["messages"])
        if n > CONTEXT:
            message = (
                f"Requested token count exceeds the model's maximum context length of {CONTEXT}"
            )
            return JSONResponse({"object": "error", "message": message}, 400)
        most = min(body.get("max_tokens", 4), 4)
        message = {"role": "assistant", "content": "abcd"[:most]}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        usage = {"prompt_tokens": n, "completion_tokens": most, "total_tokens": n + most}
        return JSONResponse({"model": "policy", "choices": [choice], "usage": usage})
