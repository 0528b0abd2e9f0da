"""The list of models that a server gives at ``/models``."""

import urllib.request
from collections.abc import Mapping
from http.client import HTTPException

import msgspec

_PATIENCE_S = 1.0
_LARGEST_LIST = 1 << 20

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


def models_at(base_url: str) -> Mapping[str, str] | None:
    """The models of a server on this machine, which is given a second to answer.

    Args:
        base_url: up to and including ``/v1``.

    Returns:
        As `read_models`; None where no server answers this request.
    """
    # A proxy of the environment is not asked about this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{base_url.rstrip('/')}/models", timeout=_PATIENCE_S) as answer:
            return read_models(answer.read(_LARGEST_LIST))
    except (OSError, ValueError, HTTPException):  # nothing, or no server of HTTP, is there
        return None


def lists(models: Mapping[str, str], name: str) -> bool:
    """Is the model listed? Ollama's tag ``latest`` may be left out."""
    return name in models or f"{name}:latest" in models


def checks_names(models: Mapping[str, str]) -> bool:
    """Does this server refuse a name that it does not list?"""
    return not _CHECKING_OWNERS.isdisjoint(models.values())
