"""Loads a tokenizer and the source of its chat template."""

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ale.errors import InputError, nearest
from ale.strict import decoded

_TEMPLATE = "llm.chat_template"
_PROBE = '{"name": "shell"} it\'s 1,234 caf\u00e9 \U0001f40d\n\tdef f(x):\n        return x  '


def load_tokenizer(name: str, local: bool) -> Any:
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


def vocabulary_id(tokenizer: Any) -> str:
    """A hash of the vocabulary: the same for all tokenizers whose ids are the same tokens."""
    vocabulary = repr(sorted(tokenizer.get_vocab().items()))
    return hashlib.blake2b(vocabulary.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def template_source(chat_template: str | None) -> str | None:
    """The text of a chat template by its option; None if the tokenizer's own is meant.

    Raises:
        InputError: it can't be read.
    """
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
