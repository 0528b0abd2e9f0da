"""The APIs whose requests and answers are recorded, by the ends of their paths."""

from collections.abc import Mapping

from ale_proxy.apis.anthropic import AnthropicApi
from ale_proxy.apis.api import Answered, AnswerReader, Api, Asked, UnreadableError
from ale_proxy.apis.chat import ChatApi
from ale_proxy.apis.completions import CompletionsApi
from ale_proxy.apis.responses import ResponsesApi

APIS: Mapping[str, Api] = {
    "/chat/completions": ChatApi(),
    "/completions": CompletionsApi(),
    "/responses": ResponsesApi(),
    "/messages": AnthropicApi(),
}
"""By the part of a path after ``/v1``."""


def api_at(path: str) -> Api | None:
    """The API of a request to this path, or None for one that is only sent on."""
    _, _, after = path.partition("?")[0].rpartition("/v1")
    return APIS.get(after)


__all__ = ["APIS", "AnswerReader", "Answered", "Api", "Asked", "UnreadableError", "api_at"]
