"""For tests: a service at loopback that the SDK talks to as to the real one.

Its model has a table of logits, one row per last token, in place of a transformer. Losses, AdamW,
snapshots and states are computed as the SDK documents them, and each request is recorded.

``python -m ale_tinker.testing FOLDER`` writes a tokenizer, prints the service's URL and serves
until it is ended. Its key is `KEY`.
"""

import argparse
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from tinker import types
from tinker.proto import tinker_public_pb2 as proto
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

KEY = "tml-loopback"
MARKS = ["<|im_start|>", "<|im_end|>"]
VOCABULARY = 256 + len(MARKS)
"""Number of tokens of `write_tokenizer`."""
_PROTO = "application/x-protobuf"


@frozen
class Answer:
    """A response of HTTP."""

    body: bytes
    status: int = 200
    kind: str = "application/json"


def answer(status: int = 200, **fields: Any) -> Answer:
    """A response in JSON."""
    return Answer(json.dumps(fields).encode(), status)


@define(eq=False)
class Adapter:
    """Weights, gradient and AdamW's moments of a training run."""

    weights: Any
    gradient: Any = None
    first: Any = 0.0
    second: Any = 0.0
    steps: int = 0

    def logp(self) -> Any:
        """log pi of each token after each token, (V, V)."""
        shifted = self.weights - self.weights.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    def update(self, given: Any) -> None:
        """One step of AdamW with the accumulated gradient, which becomes 0."""
        gradient = np.zeros_like(self.weights) if self.gradient is None else self.gradient
        norm = float(np.sqrt((gradient**2).sum()))
        if 0 < given.grad_clip_norm < norm:
            gradient = gradient * (given.grad_clip_norm / norm)
        self.steps += 1
        self.first = given.beta1 * self.first + (1 - given.beta1) * gradient
        self.second = given.beta2 * self.second + (1 - given.beta2) * gradient**2
        mean = self.first / (1 - given.beta1**self.steps)
        scale = np.sqrt(self.second / (1 - given.beta2**self.steps)) + given.eps
        decayed = self.weights * (1 - given.learning_rate * given.weight_decay)
        self.weights = decayed - given.learning_rate * mean / scale
        self.gradient = None

    def copied(self) -> "Adapter":
        """The same weights and moments, without a gradient. No array is changed in place."""
        return evolve(self, gradient=None)


def cross_entropy(logp: Any, given: Mapping[str, Any], _: Mapping[str, float]) -> tuple[Any, Any]:
    """Loss of each token, and its derivative with respect to log pi."""
    return -logp * given["weights"], -given["weights"]


def importance_sampling(
    logp: Any, given: Mapping[str, Any], _: Mapping[str, float]
) -> tuple[Any, Any]:
    """As `cross_entropy`."""
    loss = -np.exp(logp - given["logprobs"]) * given["advantages"]
    return loss, loss


def ppo(logp: Any, given: Mapping[str, Any], config: Mapping[str, float]) -> tuple[Any, Any]:
    """As `cross_entropy`."""
    low = config.get("clip_low_threshold", 0.8)
    high = config.get("clip_high_threshold", 1.2)
    ratio = np.exp(logp - given["logprobs"])
    plain = ratio * given["advantages"]
    clipped = np.clip(ratio, low, high) * given["advantages"]
    return -np.minimum(plain, clipped), np.where(plain <= clipped, -plain, 0.0)


LOSSES: Mapping[str, Callable[..., tuple[Any, Any]]] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
}


@define(eq=False)
class LoopbackService:
    """The state of the service, and what it was asked.

    Attributes:
        base: logits of the base model, (V, V).
        requests: path and content of each request, in order; heartbeats and telemetry are left out.
        failures: responses that replace those to the next requests of a path.
        pending: paths whose requests are taken and never done.
    """

    base: Any
    requests: list[tuple[str, Any]] = field(factory=list)
    failures: dict[str, list[Answer]] = field(factory=dict)
    pending: set[str] = field(factory=set)
    adapters: dict[str, Adapter] = field(factory=dict)
    stored: dict[str, Adapter] = field(factory=dict)
    """Snapshots and states by their names."""
    gradients: list[Any] = field(factory=list)
    """The gradient of each update, before it is clipped, (V, V)."""
    url: str = ""
    _samplers: dict[str, tuple[str | None, Adapter]] = field(factory=dict)
    _results: dict[str, Answer] = field(factory=dict)
    _sessions: int = 0
    _lock: Any = field(factory=threading.RLock)

    def asked(self, path: str) -> list[Any]:
        """The content of the requests of a path, in order."""
        return [content for name, content in self.requests if name == path]

    def handle(self, path: str, body: bytes) -> Answer:
        """Answer a request."""
        name = path.removeprefix("/api/v1/")
        with self._lock:
            if name == "telemetry":
                return Answer(b'{"status": "accepted"}')
            if name.startswith("samplers/"):
                return self._sampler_info(name.partition("/")[2])
            if name.endswith("/finish"):
                name = "finish"
            content = self._parsed(name, body)
            if name not in ("session_heartbeat", "retrieve_future"):
                self.requests.append((name, content))
            if self.failures.get(name):
                return self.failures[name].pop(0)
            if name in self.pending:
                return self._future(answer(408, type="try_again", queue_state="active"))
            method = getattr(self, f"_on_{name.replace('/', '_')}", None)
            found: Answer = answer(404, detail=name) if method is None else method(content)
            return found

    @staticmethod
    def _parsed(name: str, body: bytes) -> Any:
        if name == "forward_backward":
            return proto.ForwardBackwardRequest.FromString(body)
        fields = json.loads(body or b"{}")
        kind = _REQUESTS.get(name)
        return fields if kind is None else kind.model_validate(fields)

    def _future(self, result: Answer, **fields: Any) -> Answer:
        request = f"request-{len(self._results)}"
        self._results[request] = result
        return answer(request_id=request, **fields)

    def _on_client_config(self, _: Any) -> Answer:
        return answer()

    _on_client_dynamic_config = _on_finish = _on_client_config

    def _on_create_session(self, _: Any) -> Answer:
        self._sessions += 1
        return answer(session_id=f"session-{self._sessions}")

    def _on_session_heartbeat(self, _: Any) -> Answer:
        return answer()

    def _on_retrieve_future(self, asked: Any) -> Answer:
        return self._results[asked["request_id"]]

    def _on_create_sampling_session(self, asked: Any) -> Answer:
        if asked.model_path is not None and asked.model_path not in self.stored:
            return answer(404, detail=f"no {asked.model_path}")
        name = f"{asked.session_id}:sample:{asked.sampling_session_seq_id}"
        found = Adapter(self.base) if asked.model_path is None else self.stored[asked.model_path]
        self._samplers[name] = (asked.base_model, found)
        return answer(sampling_session_id=name)

    def _sampler_info(self, name: str) -> Answer:
        return answer(sampler_id=name, base_model=self._samplers[name][0] or "base")

    def _on_create_model(self, asked: Any) -> Answer:
        model = f"{asked.session_id}:train:{asked.model_seq_id}"
        self.adapters[model] = Adapter(self.base)
        return self._future(answer(model_id=model))

    def _on_get_info(self, asked: Any) -> Answer:
        return answer(model_id=asked.model_id, model_data={"model_name": "base"})

    def _on_forward_backward(self, asked: Any) -> Answer:
        adapter = self.adapters[asked.model_id]
        logp = adapter.logp()
        total, outputs = 0.0, []
        for datum in asked.data:
            tokens = np.frombuffer(datum.model_input[0].encoded_text.tokens, dtype=np.int32)
            given = {name: _array(each) for name, each in datum.loss_fn_inputs.items()}
            targets = given.pop("target_tokens")
            if any(len(each) != len(tokens) for each in (targets, *given.values())):
                return self._future(answer(error="lengths differ", category="user"))
            own = logp[tokens, targets]
            loss, derivative = LOSSES[asked.loss_fn](own, given, dict(asked.loss_fn_config))
            total += float(loss.sum())
            outputs.append(own)
            if not asked.forward_only:
                self._accumulate(adapter, tokens, targets, derivative)
        return self._future(_passed(total, outputs))

    @staticmethod
    def _accumulate(adapter: Adapter, tokens: Any, targets: Any, derivative: Any) -> None:
        probabilities = np.exp(adapter.logp())
        if adapter.gradient is None:
            adapter.gradient = np.zeros_like(adapter.weights)
        for token, target, each in zip(tokens, targets, derivative, strict=True):
            adapter.gradient[token] -= each * probabilities[token]
            adapter.gradient[token, target] += each

    def _on_optim_step(self, asked: Any) -> Answer:
        adapter = self.adapters[asked.model_id]
        self.gradients.append(adapter.gradient)
        adapter.update(asked.optim_params)
        return self._future(answer(metrics={}))

    def _on_save_weights(self, asked: Any) -> Answer:
        return self._stored(asked, "weights")

    def _on_save_weights_for_sampler(self, asked: Any) -> Answer:
        return self._stored(asked, "sampler_weights")

    def _stored(self, asked: Any, kind: str) -> Answer:
        path = f"tinker://{asked.model_id}/{kind}/{asked.path}"
        if path in self.stored:
            return self._future(answer(error=f"{path} exists", category="user"))
        self.stored[path] = self.adapters[asked.model_id].copied()
        return self._future(answer(path=path))

    def _on_load_weights(self, asked: Any) -> Answer:
        if asked.path not in self.stored:
            return self._future(answer(error=f"no {asked.path}", category="user"))
        model = f"{asked.session_id}:train:{asked.model_seq_id}"
        self.adapters[model] = self.stored[asked.path].copied()
        return self._future(answer(path=asked.path, model_id=model))

    def _on_asample(self, asked: Any) -> Answer:
        logp = self._samplers[asked.sampling_session_id][1].logp()
        prompt = [token for chunk in asked.prompt.chunks for token in chunk.tokens]
        found = proto.SampleResponse(sequences=[_drawn(logp, prompt, asked.sampling_params)])
        if asked.prompt_logprobs:
            scores = [math.nan, *logp[prompt[:-1], prompt[1:]]]
            n = len(prompt) - (asked.prompt_logprobs_last_n or len(prompt))
            scores[:n] = [math.nan] * n
            found.prompt_logprobs = np.asarray(scores, dtype=np.float32).tobytes()
        result = Answer(found.SerializeToString(), kind=_PROTO)
        return self._future(result, sample_sequence_ids=[f"sequence-{len(self._results)}"])


_REQUESTS: Mapping[str, Any] = {
    "create_session": types.CreateSessionRequest,
    "create_sampling_session": types.CreateSamplingSessionRequest,
    "create_model": types.CreateModelRequest,
    "get_info": types.GetInfoRequest,
    "optim_step": types.OptimStepRequest,
    "save_weights": types.SaveWeightsRequest,
    "save_weights_for_sampler": types.SaveWeightsForSamplerRequest,
    "load_weights": types.LoadWeightsRequest,
    "asample": types.SampleRequest,
}


def _array(tensor: Any) -> Any:
    kind = np.int64 if tensor.dtype == proto.DTYPE_INT64 else np.float32
    found = np.frombuffer(tensor.dense, dtype=kind)
    return found if kind is np.int64 else found.astype(np.float64)


def _passed(loss: float, outputs: list[Any]) -> Answer:
    sizes = np.cumsum([0, *(4 * len(each) for each in outputs)]).astype(np.int64)
    data = np.concatenate([np.zeros(0), *outputs]).astype(np.float32)
    logprobs = proto.BatchedTensor(
        data=data.tobytes(), offsets=sizes.tobytes(), dtype=proto.DTYPE_FLOAT32
    )
    record = proto.ArrayRecord(fields={"logprobs": logprobs}, num_datums=len(outputs))
    found = proto.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record], metrics={"loss:sum": loss}
    )
    return Answer(found.SerializeToString(), kind=_PROTO)


def _drawn(logp: Any, prompt: list[int], given: Any) -> Any:
    random = np.random.default_rng(given.seed)
    ids: list[int] = []
    scores: list[float] = []
    last, ended = prompt[-1], False
    while not ended and len(ids) < given.max_tokens:
        scaled = logp[last] / (given.temperature or 1e-3)
        scaled = scaled - np.logaddexp.reduce(scaled)
        last = int(random.choice(len(scaled), p=np.exp(scaled)))
        ids.append(last)
        scores.append(float(scaled[last]))
        ended = last in (given.stop or ())
    return proto.SampledSequence(
        stop_reason=proto.STOP_REASON_STOP if ended else proto.STOP_REASON_LENGTH,
        tokens=np.asarray(ids, dtype=np.int32).tobytes(),
        logprobs=np.asarray(scores, dtype=np.float32).tobytes(),
    )


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer over bytes, for the template ``chatml``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={each: i for i, each in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(MARKS)
    whole: Any = PreTrainedTokenizerFast
    whole(tokenizer_object=made, eos_token=MARKS[1]).save_pretrained(folder)


@contextmanager
def loopback(vocabulary: int = VOCABULARY, seed: int = 0) -> Iterator[LoopbackService]:
    """A service with a random base model, until the end of the block."""
    base = np.random.default_rng(seed).normal(size=(vocabulary, vocabulary))
    service = LoopbackService(base)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = service.handle(self.path, body)
            if self.headers.get("X-API-Key") != KEY:
                found = answer(401, detail="no such key")
            self.send_response(found.status)
            self.send_header("Content-Type", found.kind)
            self.send_header("Content-Length", str(len(found.body)))
            if self.path.endswith("client/config"):
                self.send_header("Connection", "close")  # the SDK forgets to close this one
            self.end_headers()
            self.wfile.write(found.body)

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(arguments: list[str] | None = None) -> None:
    """Serve a model whose answers end after some twenty tokens."""
    parser = argparse.ArgumentParser(prog="python -m ale_tinker.testing")
    parser.add_argument("tokenizer", type=Path, help="folder that gets the model's tokenizer")
    write_tokenizer(parser.parse_args(arguments).tokenizer)
    with loopback() as service:
        service.base[:, -1] += 3
        print(service.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
