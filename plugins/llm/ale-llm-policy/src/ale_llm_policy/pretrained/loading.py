"""Loads a policy from a name or folder, or creates one from a seed."""

import json
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ale.errors import InputError, nearest
from ale.strict import decoded
from ale_llm_policy.options import TinyShape
from ale_llm_policy.pretrained.policy import TorchPolicy
from ale_llm_policy.pretrained.quantising import nf4
from ale_llm_policy.pretrained.template import ChatTemplate, Turns
from ale_llm_policy.pretrained.tiny import make_tiny
from ale_training.devices import Device, Dtype, resolve_device, resolve_dtype
from ale_training.hub import only_local, unloadable
from ale_training.pretrained import LOAD_ERRORS, load_causal, no_progress_bars, why_not_loaded
from ale_training.quantised import keep_format

_TEMPLATE = "llm.chat_template"
_PROBE = '{"name": "shell"} it\'s 1,234 caf\u00e9 \U0001f40d\n\tdef f(x):\n        return x  '


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
        chat_template: ``chatml`` for this package's template, ``trl/NAME`` for one of the package
            trl, a file, or None for the model's own.
        calls: how the model writes tool calls; a name of `ale_llm_policy.pretrained.FORMATS`.
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
            tokenizer = _tokenizer(name, local)
            generation = Path(name).expanduser() / "generation_config.json"
            if generation.is_file():  # transformers ignores one that it can't read
                json.loads(generation.read_bytes())
            model = load_causal(name, local_files_only=local, **weights)
    except LOAD_ERRORS as error:
        reason, hint = why_not_loaded(name, error)
        raise unloadable(name, reason, path="llm.model", hint=hint) from error
    keep_format(model)
    source = _source(chat_template)
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


def _tokenizer(name: str, local: bool) -> Any:
    """The model's tokenizer, as defined by its ``tokenizer.json``.

    For some tokenizers AutoTokenizer uses a class of its own; if its ids then differ from the
    file's, the file takes precedence, because the model was trained with it.
    """
    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError.of(
            f"{name} has no fast tokenizer", path="llm.model", expected="a tokenizer.json"
        )
    file = Path(name) / "tokenizer.json"
    if file.is_file():
        meant = Tokenizer.from_file(str(file)).encode(_PROBE, add_special_tokens=False).ids
        if tokenizer.backend_tokenizer.encode(_PROBE, add_special_tokens=False).ids != meant:
            return PreTrainedTokenizerFast.from_pretrained(name)
    return tokenizer


def _source(chat_template: str | None) -> str | None:
    if chat_template is None:
        return None
    file, others = _template_file(chat_template)
    try:
        return decoded(file.read_bytes(), file, option=_TEMPLATE).rstrip("\n")
    except OSError as error:
        raise InputError.of(
            f"{chat_template} can't be read: {error}",
            path=_TEMPLATE,
            expected="chatml, trl/NAME, or a file with a Jinja template",
            hint=nearest(file.stem, others),
        ) from error


def _template_file(name: str) -> tuple[Path, list[str]]:
    """The file of a chat template, and the names of the templates beside it."""
    if name == "chatml":
        return Path(__file__).with_name("chatml.jinja"), []
    place, _, rest = name.partition("/")
    if place != "trl" or Path(name).exists():
        return Path(name).expanduser(), []
    try:
        folder = Path(str(distribution("trl").locate_file("trl/chat_templates")))
    except PackageNotFoundError as error:
        raise InputError.of(
            f"{name} is a template of the package trl, which is not installed",
            path=_TEMPLATE,
            hint="pip install trl",
        ) from error
    return folder / f"{rest}.jinja", sorted(file.stem for file in folder.glob("*.jinja"))
