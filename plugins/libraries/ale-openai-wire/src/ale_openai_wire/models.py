"""The list of models that a server gives at ``/models``."""

from collections.abc import Mapping

import msgspec

_CHECKING_OWNERS = frozenset({"vllm", "library", "openai", "system"})
"""``owned_by`` of vLLM, Ollama and OpenAI, which refuse a name that they don't list. Others, such
as llama.cpp, answer with the one model that they have, whatever its name in the request."""


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


def read_models(body: bytes) -> Mapping[str, str]:
    """Owners by the name of the model; empty where the body is no such list."""
    try:
        listed = msgspec.json.decode(body, type=_Models)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {model.id: model.owned_by or "" for model in listed.data}


def lists(models: Mapping[str, str], name: str) -> bool:
    """Is the model listed? Ollama's tag ``latest`` may be left out."""
    return name in models or f"{name}:latest" in models


def checks_names(models: Mapping[str, str]) -> bool:
    """Does this server refuse a name that it does not list?"""
    return not _CHECKING_OWNERS.isdisjoint(models.values())
