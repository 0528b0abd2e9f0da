"""vLLM's HTTP API, as a gateway needs it."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ale.errors import LLMError
from ale_servers.program import Answered, Asked, RefusedError
from ale_servers.protocol import NotSampledError, WeightsError
from ale_servers.records import Interruption, SampleReason, SampleRequest, Weights

_PREFIX = "generate-tokens-"
"""The prefix that vLLM adds to request ids on its route for tokens."""
_REASONS: Mapping[str, SampleReason] = {"stop": "stop", "length": "length", "abort": "abort"}


class VLLM:
    """A `Program`: vLLM 0.32 with its routes for tokens, weights and adapters.

    Args:
        asked: the running program.
        seeded: sample with the seeds of requests. On a CPU this ends vLLM as soon as a prompt is
            computed in parts: vLLM takes back a number that it has drawn, which a CPU's generator
            can't do ("CPU Generator does not use offset").
    """

    def __init__(self, asked: Asked, *, seeded: bool) -> None:
        self._asked = asked
        self._seeded = seeded

    async def is_ready(self) -> bool:
        """As `Program.is_ready`."""
        await self._asked.get("/health")
        return True

    async def begin(self, label: str) -> None:
        """As `Program.begin`."""
        await self._asked.post("/init_weight_transfer_engine", {"init_info": {}})
        await self._asked.post("/update_weight_version", {"new_version": label})

    async def sample(self, request: SampleRequest, model: str | None) -> Answered:
        """As `Program.sample`."""
        done = await self._generated(request, model, self._sampling(request), request.answer_ids)
        (choice,) = done["choices"]
        content = (choice["logprobs"] or {}).get("content") or []
        labels: list[str] = []
        for span in choice["weight_versions"] or []:
            labels += [span["version"]] * (span["end"] - span["start"])
        ids = tuple(choice["token_ids"] or ())
        if not len(ids) == len(content) == len(labels):
            raise LLMError(
                f"vLLM gave {len(ids)} tokens, {len(content)} log-probabilities and the versions "
                f"of {len(labels)}"
            )
        return Answered(
            ids=ids,
            logprobs=tuple(each["logprob"] for each in content),
            labels=tuple(labels),
            reason=_REASONS[choice["finish_reason"]],
        )

    def _sampling(self, request: SampleRequest) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "logprobs": 0,
            "stop_token_ids": list(request.stop_ids),
            "ignore_eos": True,  # what ends an answer is in the request
            "skip_special_tokens": False,  # in the text that is searched for `stop`
            "spaces_between_special_tokens": False,
            "detokenize": bool(request.stop),
        }
        if request.stop:
            wanted |= {"stop": list(request.stop), "include_stop_str_in_output": True}
        if request.seed and self._seeded:
            # The continuation must not draw the random numbers of the beginning again.
            wanted["seed"] = zlib.crc32(f"{request.seed}/{len(request.answer_ids)}".encode())
        return wanted

    async def score(self, request: SampleRequest, model: str | None) -> tuple[float, ...]:
        """As `Program.score`."""
        forced = request.forced_ids
        # vLLM always samples a token, which is ignored.
        sampling = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}
        more = (*request.answer_ids, *forced)
        done = await self._generated(request, model, sampling, more)
        if done["choices"][0]["finish_reason"] == "abort":
            raise NotSampledError("vLLM was interrupted while it scored")
        given = done["prompt_logprobs"][-len(forced) :]
        pairs = zip(forced, given, strict=True)
        return tuple(each[str(token)]["logprob"] for token, each in pairs)

    async def _generated(
        self,
        request: SampleRequest,
        model: str | None,
        sampling: Mapping[str, Any],
        more: Sequence[int],
    ) -> Any:
        body = {
            "request_id": request.id,
            "token_ids": [*request.prompt_ids, *more],
            "sampling_params": sampling,
        }
        if model is not None:
            body["model"] = model
        return await self._asked.post("/inference/v1/generate", body, timeout_s=None)

    async def abort(self, ids: Sequence[str]) -> None:
        """As `Program.abort`."""
        names = [f"{_PREFIX}{each}" for each in ids]
        await self._asked.post("/abort_requests", {"request_ids": names})

    async def pause(self, mode: Interruption) -> None:
        """As `Program.pause`."""
        await self._asked.post(f"/pause?mode={mode}&clear_cache=true")

    async def resume(self) -> None:
        """As `Program.resume`."""
        await self._asked.post("/resume")

    async def check(self, weights: Weights) -> None:
        """As `Program.check`."""
        if weights.folder:
            return
        try:
            await self._asked.post("/init_weight_transfer_engine", {"init_info": _place(weights)})
        except RefusedError as error:
            raise WeightsError(f"vLLM can't read the trainer's weights: {error}") from error

    async def load(self, weights: Weights, label: str) -> None:
        """As `Program.load`."""
        await self._asked.post("/start_weight_update")
        await self._asked.post("/update_weights", {"update_info": _place(weights)})
        await self._asked.post("/finish_weight_update", {"weight_version": label})
        await self._asked.post("/reset_prefix_cache")

    async def load_adapter(self, name: str, folder: Path) -> None:
        """As `Program.load_adapter`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        await self._asked.post("/v1/load_lora_adapter", body)

    async def unload_adapter(self, name: str) -> None:
        """As `Program.unload_adapter`."""
        await self._asked.post("/v1/unload_lora_adapter", {"lora_name": name})


def _place(weights: Weights) -> dict[str, Any]:
    """Where the weights are, as the backend in vLLM reads it."""
    if weights.folder:
        return {"folder": weights.folder}
    place = {"memory": weights.memory, "broadcast": weights.broadcast}
    return {**msgspec.to_builtins(place), "digest": weights.digest}
