"""Loads a policy from a name or folder, or creates one from a seed."""

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from ale_llm_policy.options import TinyShape
from ale_llm_policy.pretrained.policy import TorchPolicy
from ale_llm_policy.pretrained.quantising import nf4
from ale_llm_policy.pretrained.tiny import make_tiny
from ale_training.chat.template import ChatTemplate, Turns
from ale_training.chat.tokenizer import load_tokenizer, template_source
from ale_training.devices import Device, Dtype, resolve_device, resolve_dtype
from ale_training.hub import only_local, unloadable
from ale_training.pretrained import LOAD_ERRORS, load_causal, no_progress_bars, why_not_loaded
from ale_training.quantised import keep_format


def tiny_policy(
    corpus: Path | Iterable[str] | None,
    shape: TinyShape,
    *,
    seed: int = 0,
    whole: Iterable[str] = (),
    device: Device = "cpu",
    dtype: Dtype = "auto",
) -> TorchPolicy:
    """A tiny policy with fresh weights; see `make_tiny`."""
    model, tokenizer = make_tiny(corpus, shape, seed=seed, whole=whole)
    place = resolve_device(device, path="llm.device")
    model.to(device=place, dtype=resolve_dtype(dtype, place))
    return TorchPolicy(model, tokenizer, ChatTemplate(tokenizer), name=f"tiny-{seed}")


def load_policy(
    name: str,
    *,
    device: Device = "auto",
    dtype: Dtype = "auto",
    chat_template: str | None = None,
    calls: str = "hermes",
    turns: Turns = "as-rendered",
    quantise: bool = False,
    today: datetime | None = None,
) -> TorchPolicy:
    """Any causal model of transformers.

    Args:
        name: a folder, or a name on the hub; with ``HF_HUB_OFFLINE`` set nothing is downloaded.
        device: ``auto`` is CUDA if available.
        dtype: ``auto`` is bfloat16 on CUDA and float32 elsewhere.
        chat_template: ``chatml``, ``trl/NAME`` for one of the package trl, a file, or None for the
            model's own.
        calls: how the model writes tool calls; a name of `ale_training.chat.FORMATS`.
        turns: see `ChatTemplate`.
        quantise: load the linear layers in 4 bits, as NF4; the rest has `dtype`.
        today: see `ChatTemplate`.

    Raises:
        InputError: the model can't be loaded, a package that `quantise` needs is not installed, or
            the template does not extend its own prefix.
    """
    place = resolve_device(device, path="llm.device")
    local = only_local(name, path="llm.model")
    weights: dict[str, Any] = {"dtype": resolve_dtype(dtype, place)}
    if quantise:
        weights |= nf4(place, weights["dtype"])
    try:
        with no_progress_bars():
            tokenizer = load_tokenizer(name, local)
            generation = Path(name).expanduser() / "generation_config.json"
            if generation.is_file():  # transformers ignores one that it can't read
                json.loads(generation.read_bytes())
            model = load_causal(name, local_files_only=local, **weights)
    except LOAD_ERRORS as error:
        reason, hint = why_not_loaded(name, error)
        raise unloadable(name, reason, path="llm.model", hint=hint) from error
    keep_format(model)
    source = template_source(chat_template)
    if source is not None:
        tokenizer.chat_template = source  # so that `TorchPolicy.save` keeps it
    ends = _ends(model, tokenizer)
    template = ChatTemplate(tokenizer, calls=calls, turns=turns, ends=ends, today=today)
    return TorchPolicy(model.to(place).eval(), tokenizer, template, name=name)


def _ends(model: Any, tokenizer: Any) -> set[int]:
    """The tokens that end an answer, as tokenizer and generation config list them."""
    listed = getattr(model.generation_config, "eos_token_id", None)
    several = listed if isinstance(listed, list) else [listed]
    return {int(each) for each in (tokenizer.eos_token_id, *several) if each is not None}
