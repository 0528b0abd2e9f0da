"""Loads a causal model of transformers whose files have all of its weights, or says why not."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM
from transformers.utils import logging

LOAD_ERRORS = (
    *(OSError, ValueError, KeyError, ImportError),
    *(RuntimeError, SafetensorError, StrictDataclassError),
)
"""Errors that transformers raises for a model or tokenizer that it can't load."""
_FILES = ("model.safetensors", "model.safetensors.index.json", "*.safetensors", "*.bin")
_LISTED = 4
_LAYER = re.compile(r"(.*?)\.\d+(?=\.)")


def load_causal(name: str, *, head: bool = True, **more: Any) -> Any:
    """A causal model, all of whose weights are in its files.

    transformers gives weights that the files lack random values, with a warning. Weights that are
    tied to others, as an output layer can be to the embeddings, are not in the files.

    Args:
        name: a folder, or a name on the hub.
        head: the output layer is used; False: the files may lack it.
        more: arguments of ``from_pretrained``.

    Raises:
        ValueError: the files lack weights, or have weights of other shapes or of more layers than
            the config.
        Exception: another of `LOAD_ERRORS`; `why_not_loaded` explains it.
    """
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        name, output_loading_info=True, ignore_mismatched_sizes=True, **more
    )
    model, found = loaded
    base = model.base_model_prefix
    needed = "" if head or not base else f"{base}."
    missing = sorted(each for each in found["missing_keys"] if each.startswith(needed))
    other = sorted(
        f"{each} ({list(has)}, not {list(wants)})"
        for each, has, wants in found["mismatched_keys"]
        if each.startswith(needed)
    )
    if missing:
        raise ValueError(f"{_file_of(name)} lacks weights of the model: {_some(missing)}")
    if other:
        raise ValueError(f"{_file_of(name)} has other shapes than config.json says: {_some(other)}")
    if further := _further(model, found["unexpected_keys"]):
        layers = f"{_file_of(name)} has more layers than config.json says"
        raise ValueError(f"{layers}: {_some(further)}")
    return model


def _further(model: Any, unused: Iterable[str]) -> list[str]:
    """Weights of the files that continue the model's layers: without them it is another model.

    Other weights that are not used are often of parts that a causal model has no use for, such as
    the layers of a vision tower; those that transformers leaves out on purpose are not in `unused`.
    """
    layers = {found[0] for found in map(_LAYER.match, model.state_dict()) if found}
    places = {layer.rpartition(".")[0] for layer in layers}
    return sorted(
        each
        for each in unused
        if (found := _LAYER.match(each)) and found[1] in places and found[0] not in layers
    )


def _file_of(name: str) -> str:
    """The file from which transformers reads a folder's weights, or which lists such files."""
    folder = Path(name).expanduser()
    return next((path.name for kind in _FILES for path in sorted(folder.glob(kind))), name)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def why_not_loaded(
    name: str, error: Exception, *, tokenizer: bool = True
) -> tuple[str, str | None]:
    """Why a model can't be loaded, in a line, and a remedy if there is one.

    Args:
        error: what loading it raised.
        tokenizer: the folder has to have a tokenizer too.
    """
    folder = Path(name).expanduser().absolute()
    lacks, hint = _lacking(folder, tokenizer) if folder.exists() else (None, None)
    cause = error.__cause__ if isinstance(error, StrictDataclassError) else None
    lines = str(cause or error).strip().splitlines()
    return lacks or (lines or [type(error).__name__])[0], hint


def _lacking(folder: Path, tokenizer: bool) -> tuple[str | None, str | None]:
    """What a folder lacks to be a model, or which file is damaged, and a remedy."""
    if not folder.is_dir():
        hint = "transformers reads a GGUF file with gguf_file=, and saves it as a folder"
        return f"{folder.name} is a file", hint if folder.suffix == ".gguf" else None
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        hint = "ale model RUN --out FOLDER --merge, or merge_and_unload of peft"
        return f"{folder.name} has adapters alone, without the model that they are of", hint
    for kind in ("config.json", *(["tokenizer.json"] if tokenizer else []), "*.safetensors"):
        if not any(folder.glob(kind)):
            return f"{folder.name} has no {kind}", None
    return _damaged(folder), None


def _damaged(folder: Path) -> str | None:
    for path in sorted(folder.glob("*.*")):
        try:
            if path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
        except (OSError, ValueError, SafetensorError) as error:
            return f"{path.name} is damaged: {error}"
    return None


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Suppress the progress bars of transformers in the output of a run or command."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
