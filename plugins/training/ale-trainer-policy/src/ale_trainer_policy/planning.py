"""``ale plan``: read a config, and print how much memory it needs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.runs import (
    Registry,
    apply_environment,
    apply_overrides,
    build_choice,
    environment_notes,
    read_choice,
    read_source,
    written_config,
)
from ale.strict import Node, from_plain, structure
from ale_trainer_policy.limits import host_memory
from ale_trainer_policy.memory_plan import (
    GIB,
    Change,
    MemoryPlan,
    Planner,
    Sampler,
)
from ale_trainer_policy.models import check_quantised
from ale_trainer_policy.options import TRAINERS, LearnOptions
from ale_training.devices import resolve_dtype
from ale_training.hub import only_local
from ale_training.tokens import context_of

_WIDTH = 36


def planned(
    path: Path,
    registry: Registry,
    overrides: Sequence[str],
    *,
    context: int | None,
    memory: float | None,
    as_json: bool,
) -> Iterator[str]:
    """The lines of ``ale plan``.

    Args:
        context: tokens of the longest episode; the model's own limit if None.
        memory: GiB of one device; None takes this machine's.

    Raises:
        InputError: the config is invalid, or names a model or trainer that can't be planned.
    """
    tree = apply_overrides(apply_environment(read_source(path), os.environ), overrides)
    config = written_config(tree, registry)
    options = _trainer(tree, config, registry)
    model, sampler = _sampler(tree, config, registry, context)
    if sampler.quantised:
        check_quantised(options)
    planner = Planner(model)
    found = planner.plan(sampler, options)
    device = _device(config["llm"])
    limit, source = _memory(device) if memory is None else (memory * GIB, "--memory")
    host, host_source = host_memory()
    fits = found.peak <= limit
    alone, together = ((), None) if fits else planner.changes_that_fit(sampler, options, limit)
    if as_json:
        yield json.dumps(_plain(found, limit, host, alone, together), indent=2)
        return
    yield from environment_notes(tree)
    yield _head(sampler, options, found)
    yield from _table(found)
    yield _verdict("peak", found.peak, limit, source)
    if found.on_host:
        yield _verdict("on the host, of all processes", found.on_host, host, host_source)
    if sampler.elsewhere:
        yield "inference servers are not counted: --memory says what they leave to the trainer"
    if together is not None:
        yield from _ways(alone, together, limit, on_host=sampler.on_host)


def _trainer(tree: Node, config: Mapping[str, Any], registry: Registry) -> LearnOptions:
    section = config.get("trainer")
    name = str(section["type"]).rpartition("/")[2] if section else ""
    if section is None or name not in TRAINERS:
        message = f"trainer '{name}' is not planned" if section else "there is no trainer"
        expected = "trainer: {type: policy, ...} or {type: sft, ...}"
        where = tree.get("trainer") or tree
        raise where.error(message, path="trainer", expected=expected)
    options: LearnOptions = read_choice(from_plain(section), "trainer", registry)
    return options


def _sampler(
    tree: Node, config: Mapping[str, Any], registry: Registry, context: int | None
) -> tuple[Any, Sampler]:
    """The config of the model that samples, and how it samples; its weights are not read.

    Raises:
        InputError: the component is neither ``policy`` nor ``servers``, or its model can't be read.
    """
    section = config.get("llm") or {}
    given = {key: value for key, value in section.items() if key != "type"}
    registration = registry.find("llm", str(section.get("type")))
    kind = registration.component.options
    if registration.component.name not in ("policy", "servers") or kind is None:
        message = f"the model '{registration.component.name}' is not trained in this process"
        expected = "llm: {type: policy, ...}, or servers"
        raise tree.error(message, path="llm.type", expected=expected)
    options: Any = structure(from_plain(given), kind, path="llm")
    model = _model_config(section, options, registry, int(config.get("run", {}).get("seed", 0)))
    most = context_of(model)
    own = context or min(options.context or most, most)
    if own == sys.maxsize:
        message = "the model's config does not say how many tokens its context holds"
        raise tree.error(message, path="llm.context", expected="a number of tokens, or --context")
    if own > most:  # the same model, made for longer contexts
        model.get_text_config().max_position_embeddings = own
    wanted = config.get("run", {}).get("concurrency", 8)
    concurrency = options.max_batch if wanted == "auto" else int(wanted)
    device = _device(section)
    elsewhere = registration.component.name == "servers"
    return model, Sampler(
        dtype=resolve_dtype(options.dtype, device),
        context=own,
        rows=1 if elsewhere else min(options.max_batch, concurrency),
        packed=options.decoder != "modules" and not elsewhere,
        prefix_cache=0 if elsewhere else options.prefix_cache_mb << 20,
        on_host=device.type == "cpu",
        quantised=None if options.model is None else options.quantise is not None,
        elsewhere=elsewhere,
    )


def _model_config(section: Mapping[str, Any], options: Any, registry: Registry, seed: int) -> Any:
    if options.model is None:
        # A tiny model's vocabulary depends on its corpus.
        node = from_plain(dict(section))
        _, llm = build_choice(node, "llm", registry, BuildContext(seed=seed))
        try:
            return llm.policy.model.config
        finally:
            asyncio.run(llm.aclose())
    from transformers import AutoConfig

    name = str(options.model)
    local = only_local(name, path="llm.model")
    try:
        return AutoConfig.from_pretrained(name, local_files_only=local)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        message = f"the config of {name} can't be read: {reason}"
        raise InputError.of(message, path="llm.model") from error


def _device(section: Mapping[str, Any]) -> torch.device:
    wanted = section.get("device", "auto")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def _memory(device: torch.device) -> tuple[float, str]:
    """Bytes of a device of this machine, and what limits them."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory), "this machine's GPU"
    return host_memory()


def _head(sampler: Sampler, options: LearnOptions, found: MemoryPlan) -> str:
    kind = "NF4" if sampler.quantised else str(sampler.dtype).rpartition(".")[2]
    which = "all" if sampler.on_host else "rank 0 of"
    ranks = "" if options.processes == 1 else f", {which} {options.processes} processes"
    traced = found.traced
    return (
        f"{traced.model}: {traced.parameters / 1e6:,.1f} M parameters in {kind}, of which "
        f"{traced.trained / 1e6:,.1f} M are trained{ranks}; episodes of {sampler.context} tokens, "
        f"{'' if sampler.elsewhere else f'{sampler.rows} at once, '}"
        f"micro-batches of {max(sampler.context, options.max_tokens_per_microbatch)}"
    )


def _table(found: MemoryPlan) -> Iterator[str]:
    for part in found.parts:
        when = "" if part.when == "always" else f"  while {part.when}"
        yield f"{part.name:{_WIDTH}}{_size(part.bytes):>10}{when}"


def _verdict(name: str, needed: float, limit: float, source: str) -> str:
    verdict = "fits" if needed <= limit else "does not fit"
    return f"{name:{_WIDTH}}{_size(needed):>10}  of {_size(limit)} ({source}): {verdict}"


def _size(n: float) -> str:
    return f"{n / GIB:.1f} GiB" if n >= GIB else f"{n / 2**20:.0f} MiB"


def _ways(
    alone: Sequence[Change], together: Change, limit: float, *, on_host: bool
) -> Iterator[str]:
    for change in alone:
        yield f"it fits with --set {change.overrides[0]}: {_size(change.peak)}"
    if alone:
        return
    flags = " ".join(f"--set {each}" for each in together.overrides)
    if together.peak <= limit:
        yield f"it fits with all of {flags}: {_size(together.peak)}"
    else:
        yield f"with {flags} it still needs {_size(together.peak)} on one device"
        if not on_host:  # whose processes share its memory
            yield "trainer.processes=N with trainer.sync=copy shards what is trained over N devices"


def _plain(
    found: MemoryPlan,
    limit: float,
    host: float,
    alone: Sequence[Change],
    together: Change | None,
) -> dict[str, Any]:
    return {
        "model": found.traced.model,
        "parameters": found.traced.parameters,
        "trained": found.traced.trained,
        "parts": [attrs.asdict(part) for part in found.parts],
        "peak_bytes": found.peak,
        "memory_bytes": limit,
        "on_host_bytes": found.on_host,
        "host_bytes": host,
        "fits": found.peak <= limit and found.on_host <= host,
        "fits_with": [attrs.asdict(each) for each in alone],
        "together": None if together is None else attrs.asdict(together),
    }
