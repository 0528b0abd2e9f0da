"""Builds the model components, and checks them against the model's own forward pass."""

import logging
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import evolve
from torch import Tensor

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.runs import Registry, check_choice
from ale.strict import from_plain
from ale.types import Sampling
from ale_llm_policy.batch import Batch, Forward
from ale_llm_policy.broadcast import BroadcastWeights
from ale_llm_policy.channels import Channel, FolderWeights
from ale_llm_policy.engine import Engine
from ale_llm_policy.jobs import Job
from ale_llm_policy.model import PolicyLLM
from ale_llm_policy.modules import Modules
from ale_llm_policy.options import PolicyOptions, ServersOptions, TinyOptions
from ale_llm_policy.packed import Packed, is_packable
from ale_llm_policy.pretrained import TorchPolicy, load_policy, tiny_policy
from ale_llm_policy.servers import OwnServers, ServersLLM
from ale_llm_policy.shared import SharedWeights
from ale_servers.address import Address
from ale_servers.channel import WeightFolder
from ale_servers.origin import WeightOrigin
from ale_servers.places import registry_at
from ale_servers.pool import PoolOptions
from ale_servers.records import SampleReason, SampleRequest
from ale_servers.registry import Addresses
from ale_servers.registry import Registry as ServerRegistry
from ale_training.devices import resolve_device, resolve_dtype

log = logging.getLogger(__name__)
Options = TypeVar("Options", bound=PolicyOptions)


def build(options: PolicyOptions, context: BuildContext) -> PolicyLLM:
    """Load or create the policy. The sampling thread starts with the first request.

    Raises:
        InputError: the model can't be loaded, or is not supported by the engine.
    """
    device = resolve_device(options.device, path="llm.device")
    if context.checking and options.quantise is None:
        # PyTorch would keep a GPU's memory for this process, as long as a launch may take.
        options = _on_host(options, device)
    return wrap_policy(_policy(options, context), options)


def build_servers(options: ServersOptions, context: BuildContext) -> ServersLLM:
    """Load or create the policy whose weights the servers get. No server is asked.

    Raises:
        InputError: the model can't be loaded, the key's variable is not set, or own servers can't
            have these options.
    """
    if options.server:
        # `ale serve` would refuse them, but only when the run's first request starts it.
        section = from_plain({**options.server, "model": str(options.model or "model")})
        check_choice(section, "llm", Registry.installed(), path="llm.server")
    device = resolve_device(options.device, path="llm.device")
    policy = _policy(_on_host(options, device), context)
    if options.threads is not None and device.type == "cpu":
        torch.set_num_threads(options.threads)
    run = context.run_directory
    if run is None:  # created when something is written
        run = Path(tempfile.gettempdir()) / f"ale-servers-{os.urandom(6).hex()}"
    own = None
    if options.start:
        own = OwnServers(
            n=options.start,
            folder=run / "servers",
            section=_own_section(options),
            environ={**os.environ, **context.environ},
            gpus=options.gpus,
        )
    registry = own.registry if own else _registry(options, context)
    # Several runs may be given the same folder.
    folder = run / "weights" if options.weights is None else options.weights / context.run_id
    if options.adapter:
        folder /= options.adapter  # agents of one run may have an adapter each
    address = options.hands_out_at if options.weights_channel == "folder" else None
    llm = ServersLLM(
        policy,
        registry,
        _channel(options, folder, device),
        origin=None if address is None else WeightOrigin(folder, address),
        training_device=str(device),
        run=context.run_id,
        following=options.follow,
        options=PoolOptions(
            timeout_s=options.timeout_s,
            interruption=options.interruption,
            refresh_s=options.refresh_s,
            take_over=options.take_over,
            follow=options.follow is not None,
            adapter=options.adapter,
        ),
        key=_key(options, context),
        own=own,
        client=_client_options(options, own),
        defaults=_defaults(options),
        context=options.context or policy.context,
    )
    # Not refused here: the run may be started on another machine. There, its check refuses.
    if obstacle := llm.obstacle():
        log.warning("warning: %s", obstacle)
    return llm


def _channel(options: ServersOptions, folder: Path, device: torch.device) -> Channel:
    match options.weights_channel:
        case "folder":
            return FolderWeights(WeightFolder(folder))
        case "shared_memory":
            return SharedWeights(None)
        case "cuda_ipc":
            return SharedWeights(device)
        case backend:
            # Neither what is sent nor torch's store, by which servers meet, asks who somebody is.
            here = Address("127.0.0.1")
            return BroadcastWeights(backend, device, options.hands_out_at or here)


def _on_host(options: Options, device: torch.device) -> Options:
    """The options with the model in the processor's memory, where nothing samples from it here, but
    in the device's precision.
    """
    dtype: Any = str(resolve_dtype(options.dtype, device)).removeprefix("torch.")
    return evolve(options, device="cpu", dtype=dtype)


def _registry(options: ServersOptions, context: BuildContext) -> ServerRegistry:
    place = options.registry or options.nats_server
    return registry_at(place, context.environ) if place else Addresses(options.urls)


def _client_options(options: ServersOptions, own: OwnServers | None) -> dict[str, Any]:
    """Options with which another process samples from the same servers."""
    folder = own.registry.folder if own else options.registry
    return {
        "urls": list(options.urls),
        "registry": None if folder is None else str(folder.absolute()),
        "start": 0,
        "take_over": False,
        "weights_channel": "folder",  # it gives them none
        "weights_address": "",
        "server": {},
        "gpus": [],
    }


def _key(options: ServersOptions, context: BuildContext) -> str | None:
    if options.api_key_env is None:
        return None
    key = context.secret(options.api_key_env)
    if key is None:
        message = f"the environment variable {options.api_key_env} is not set"
        raise InputError.of(message, path="llm.api_key_env")
    return key.value


def _own_section(options: ServersOptions) -> dict[str, Any]:
    """The section ``llm`` for own servers, without the model."""
    if options.server:
        return dict(options.server)
    same = ("max_batch", "prefix_cache_mb", "decoder", "device", "dtype", "threads", "calls")
    section = {name: getattr(options, name) for name in (*same, "turns", "context")}
    return {"type": "policy", **section}


def _policy(options: PolicyOptions, context: BuildContext) -> TorchPolicy:
    if options.model is None:
        tiny = options.tiny or TinyOptions()
        return tiny_policy(
            tiny.corpus,
            tiny,
            seed=context.seed,
            whole=tiny.whole,
            device=options.device,
            dtype=options.dtype,
        )
    # Seen by workers in other time zones too.
    today = None if context.created is None else datetime.fromtimestamp(context.created, UTC)
    policy = load_policy(
        options.model,
        device=options.device,
        dtype=options.dtype,
        chat_template=options.chat_template,
        calls=options.calls,
        turns=options.turns,
        quantise=options.quantise is not None,
        today=today,
    )
    if why := policy.template.no_tools:
        log.warning(
            "warning: %s; agents have to ask for calls as text, as tool_format: auto does", why
        )
    return policy


def wrap_policy(policy: TorchPolicy, options: PolicyOptions) -> PolicyLLM:
    """A model component that samples from this policy.

    Raises:
        InputError: the policy is not supported by the engine.
    """

    def copied() -> tuple[TorchPolicy, Engine]:
        with policy.lock:
            copy = policy.copied()
        return copy, _engine(copy, options)

    return PolicyLLM(
        policy,
        _engine(policy, options),
        defaults=_defaults(options),
        context=options.context or policy.context,
        copied=copied,
    )


def _engine(policy: TorchPolicy, options: PolicyOptions) -> Engine:
    return Engine(
        policy,
        _forward(policy, options),
        max_batch=options.max_batch,
        cache_bytes=options.prefix_cache_mb << 20,
        threads=options.threads if policy.device.type == "cpu" else None,
    )


def _defaults(options: PolicyOptions) -> Sampling:
    return Sampling(
        temperature=options.temperature,
        top_p=options.top_p,
        max_tokens=options.max_tokens,
        stop=options.stop,
    )


def _forward(policy: TorchPolicy, options: PolicyOptions) -> Forward:
    packs = is_packable(policy.base)
    if options.decoder == "packed" and not packs:
        name = type(policy.base).__name__
        raise InputError.of(
            f"{name} can't be packed",
            path="llm.decoder",
            expected="Qwen2, Qwen3 or Llama with full attention, not quantised",
            hint="decoder: auto",
        )
    packed = packs and options.decoder != "modules"
    model: Forward = Packed(policy.base) if packed else Modules(policy.base)
    _check(policy, model)
    return model


def _check(policy: TorchPolicy, model: Forward) -> None:
    """Compare the engine's log-probabilities with the model's, on two rows of different length.

    They may differ by as much as rounding allows: four times the difference of the model's own when
    the sequence is longer, which changes only the order of sums, or one unit in the last place of
    the largest logit, or 0.001, whichever is the most. All differences are root mean squares.

    Raises:
        InputError: they differ, so the model violates the engine's assumptions.
    """
    n_vocabulary = policy.base.config.get_text_config().vocab_size
    sequences = [[(7 * i + 3) % n_vocabulary for i in range(n)] for n in (9, 6)]
    asked = [SampleRequest(id="", prompt_ids=tuple(s[:-1]), max_tokens=1) for s in sequences]
    batch = Batch(model, policy.device)
    with policy.lock:
        batch.jobs += [Job(each, _ignore) for each in asked]
        batch.prefill(0)
        for job, sequence in zip(batch.jobs, sequences, strict=True):
            job.ids = list(sequence)
        found = batch.decode().log_softmax(-1)
        logits = torch.stack([_plain(policy, sequence, len(sequence)) for sequence in sequences])
        longer = torch.stack([_plain(policy, [*s, *s], len(s)) for s in sequences])
    meant = logits.log_softmax(-1)
    unit = torch.finfo(policy.dtype).eps * float(logits.abs().max())
    tolerance = max(1e-3, unit, 4 * _distance(longer.log_softmax(-1), meant))
    distance = _distance(found, meant)
    if not distance <= tolerance:
        message = f"stepwise log-probabilities differ from the model's own by {distance:.2g}"
        expected = f"at most {tolerance:.2g}, by rounding: attention over keys and values per token"
        raise InputError.of(message, path="llm.model", expected=expected)


@torch.inference_mode()
def _plain(policy: TorchPolicy, ids: list[int], n: int) -> Tensor:
    """The logits after the first `n` of these ids."""
    training = policy.base.training
    policy.base.eval()
    logits: Tensor = policy.base(torch.tensor([ids], device=policy.device), use_cache=False).logits
    policy.base.train(training)
    return logits[0, n - 1].float()


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).square().mean().sqrt())


def _ignore(job: Job, reason: SampleReason | Exception) -> None:
    """The results are not used."""
