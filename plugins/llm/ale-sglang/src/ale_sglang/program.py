"""SGLang's HTTP API, as a gateway needs it; written from SGLang's sources and documentation."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ale.errors import LLMError
from ale_servers.program import Answered, Asked, RefusedError
from ale_servers.protocol import NotSampledError, WeightsError
from ale_servers.records import Interruption, SampleReason, SampleRequest, Weights

_REASONS: Mapping[str, SampleReason] = {"stop": "stop", "length": "length", "abort": "abort"}
_FLUSH_TRIES = 100


class SGLang:
    """A `Program`: SGLang 0.5, whose answers do not say which weights sampled which token.

    To know it all the same, a pause always ends the requests; those that are to be kept are sent
    again from here afterwards, with prompt and beginning. So no request is in SGLang while its
    weights change.

    Args:
        asked: the running program.
    """

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._label = ""
        self._open = asyncio.Event()
        self._open.set()
        self._kept: set[str] = set()
        self._inside: set[str] = set()

    async def is_ready(self) -> bool:
        """As `Program.is_ready`."""
        await self._asked.get("/health")
        return True

    async def begin(self, label: str) -> None:
        """As `Program.begin`."""
        self._label = label
        self._kept.clear()
        self._open.set()

    async def sample(self, request: SampleRequest, model: str | None) -> Answered:
        """As `Program.sample`."""
        if request.top_p != 1:
            raise LLMError("SGLang's log-probabilities are those before top-p: use top_p: 1")
        parts: list[Answered] = []
        try:
            while True:
                done = [token for part in parts for token in part.ids]
                rest = msgspec.structs.replace(
                    request,
                    answer_ids=(*request.answer_ids, *done),
                    max_tokens=request.max_tokens - len(done),
                )
                if not await self._may_begin(request.id):
                    return _joined(parts, "abort")
                parts.append(await self._part(rest, model))
                if request.id not in self._kept or parts[-1].reason != "abort":
                    return _joined(parts, parts[-1].reason)
        finally:
            self._kept.discard(request.id)

    async def _may_begin(self, name: str) -> bool:
        """Wait for the end of a pause; False if the request is aborted meanwhile."""
        if self._open.is_set():
            return True
        self._kept.add(name)
        while not self._open.is_set() and name in self._kept:
            opened = asyncio.create_task(self._open.wait())
            await asyncio.wait([opened], timeout=0.05)
            opened.cancel()
        kept = name in self._kept
        self._kept.discard(name)
        return kept

    async def _part(self, request: SampleRequest, model: str | None) -> Answered:
        label = self._label
        self._inside.add(request.id)
        try:
            done = await self._generated(request, model, _sampling(request), request.answer_ids)
        finally:
            self._inside.discard(request.id)
        about = done["meta_info"]
        given = about.get("output_token_logprobs") or []
        ids = tuple(token for _, token, *_ in given)
        if list(ids) != list(done["output_ids"])[: len(ids)] or len(ids) < len(done["output_ids"]):
            raise LLMError("SGLang's log-probabilities are of other tokens than its answer")
        return Answered(
            ids=ids,
            logprobs=tuple(value for value, *_ in given),
            labels=(label,) * len(ids),
            reason=_REASONS[about["finish_reason"]["type"]],
        )

    async def score(self, request: SampleRequest, model: str | None) -> tuple[float, ...]:
        """As `Program.score`."""
        n = len(request.prompt_ids) + len(request.answer_ids)
        # SGLang always samples a token, which is ignored.
        sampling = {"max_new_tokens": 1, "temperature": 0.0}
        more = (*request.answer_ids, *request.forced_ids)
        fields = {"logprob_start_len": max(0, n - 1)}
        done = await self._generated(request, model, sampling, more, **fields)
        about = done["meta_info"]
        if about["finish_reason"]["type"] == "abort":
            raise NotSampledError("SGLang was interrupted while it scored")
        given = about["input_token_logprobs"][-len(request.forced_ids) :]
        if tuple(token for _, token, *_ in given) != request.forced_ids:
            raise LLMError("SGLang has scored other tokens than it was asked to")
        return tuple(value for value, *_ in given)

    async def _generated(
        self,
        request: SampleRequest,
        model: str | None,
        sampling: Mapping[str, Any],
        more: Sequence[int],
        **fields: Any,
    ) -> Any:
        body = {
            "rid": request.id,
            "input_ids": [*request.prompt_ids, *more],
            "sampling_params": sampling,
            "return_logprob": True,
            **fields,
        }
        if model is not None:
            body["lora_path"] = model
        return await self._asked.post("/generate", body, timeout_s=None)

    async def abort(self, ids: Sequence[str]) -> None:
        """As `Program.abort`."""
        self._kept.difference_update(ids)
        for name in self._inside.intersection(ids):
            await self._asked.post("/abort_request", {"rid": name})

    async def pause(self, mode: Interruption) -> None:
        """As `Program.pause`."""
        self._open.clear()
        if mode == "keep":
            self._kept |= self._inside
        await self._asked.post("/pause_generation", {"mode": "abort"})
        while inside := [*self._inside]:  # a request may have been on its way
            for name in inside:
                await self._asked.post("/abort_request", {"rid": name})
            await asyncio.sleep(0.02)

    async def resume(self) -> None:
        """As `Program.resume`."""
        await self._asked.post("/continue_generation", {})
        self._open.set()

    async def check(self, weights: Weights) -> None:
        """As `Program.check`."""
        if not weights.folder:
            raise WeightsError(
                "SGLang reads weights from a folder only; set 'weights_channel: folder' in the "
                "trainer's 'llm: {type: servers}'"
            )

    async def load(self, weights: Weights, label: str) -> None:
        """As `Program.load`."""
        body = {"model_path": weights.folder, "flush_cache": True, "weight_version": label}
        done = await self._asked.post("/update_weights_from_disk", body)
        if not done["success"]:
            raise LLMError(f"SGLang has not taken the weights: {done['message']}")
        await self._flush()
        self._label = label

    async def _flush(self) -> None:
        """Forget all keys and values; SGLang refuses while a request is still being removed."""
        for _ in range(_FLUSH_TRIES):
            try:
                await self._asked.post("/flush_cache")
            except RefusedError as error:
                if error.status != 400:
                    raise
                await asyncio.sleep(0.1)
            else:
                return
        raise LLMError("SGLang does not forget its keys and values: requests are in progress")

    async def load_adapter(self, name: str, folder: Path) -> None:
        """As `Program.load_adapter`."""
        body = {"lora_name": name, "lora_path": str(folder)}
        done = await self._asked.post("/load_lora_adapter", body)
        if not done["success"]:
            raise RefusedError(f"SGLang: {done['error_message']}", 400)

    async def unload_adapter(self, name: str) -> None:
        """As `Program.unload_adapter`."""
        done = await self._asked.post("/unload_lora_adapter", {"lora_name": name})
        if not done["success"]:
            raise RefusedError(f"SGLang: {done['error_message']}", 400)


def _joined(parts: Sequence[Answered], reason: SampleReason) -> Answered:
    return Answered(
        ids=tuple(token for part in parts for token in part.ids),
        logprobs=tuple(value for part in parts for value in part.logprobs),
        labels=tuple(label for part in parts for label in part.labels),
        reason=reason,
    )


def _sampling(request: SampleRequest) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "max_new_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop_token_ids": list(request.stop_ids),
        "ignore_eos": True,  # what ends an answer is in the request
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
    }
    if request.stop:
        wanted["stop"] = list(request.stop)
    if request.seed:
        # The continuation must not draw the random numbers of the beginning again.
        seed = f"{request.seed}/{len(request.answer_ids)}"
        wanted["sampling_seed"] = zlib.crc32(seed.encode()) & 0x7FFFFFFF
    return wanted
