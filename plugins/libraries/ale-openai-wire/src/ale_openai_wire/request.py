"""A conversation as the fields of a chat-completion request."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ale.types import Conversation, Message, Sampling, ToolSpec

ReasoningField = Literal["reasoning", "reasoning_content"]
_CHANGES_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "top_k": (0, -1),
    "min_p": (0,),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (0,)),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    **dict.fromkeys(("min_tokens", "min_new_tokens"), (0,)),
    **dict.fromkeys(("bad_words", "allowed_token_ids"), ([],)),
    "best_of": (1,),
    "use_beam_search": (False,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto", "none"),
    **dict.fromkeys(("structured_outputs", "regex", "ebnf", "json_schema"), ()),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
}
"""Fields of vLLM, SGLang and others that give tokens another probability than the model does, and
the values, besides null, with which they do not."""


def messages(
    conversation: Sequence[Message], *, reasoning_field: ReasoningField | None = None
) -> list[dict[str, Any]]:
    """The conversation as ``messages``.

    Args:
        reasoning_field: the field in which earlier reasoning goes back to the model; None leaves
            it out, which is what most chat templates expect.
    """
    return [_message(message, reasoning_field) for message in conversation]


def _message(message: Message, reasoning_field: ReasoningField | None) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        # Null, not "", is what the API itself sends with calls; some providers refuse "".
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if reasoning_field is not None and message.reasoning is not None:
        wire[reasoning_field] = message.reasoning
    return wire


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools as ``tools``."""
    return [
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": dict(spec.parameters),
            },
        }
        for spec in specs
    ]


def effective(asked: Sampling, defaults: Sampling) -> Sampling:
    """The sampling of the request, completed by that of the options."""

    def pick(name: str) -> Any:
        value = getattr(asked, name)
        return getattr(defaults, name) if value is None else value

    return Sampling(
        temperature=pick("temperature"),
        top_p=pick("top_p"),
        max_tokens=pick("max_tokens"),
        stop=asked.stop or defaults.stop,
    )


def sampling_fields(sampling: Sampling, *, max_tokens_field: str = "max_tokens") -> dict[str, Any]:
    """The sampling as fields of the request; what is None is left to the provider."""
    fields = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        max_tokens_field: sampling.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def samples_as_model(fields: Mapping[str, Any]) -> bool:
    """Does a request with these fields sample each token with the model's own probability?

    Only then are log-probabilities of the model's own distribution those of the sampled tokens.
    Temperature and top_p have to be given: a server may have other defaults than 1.
    """
    return fields.get("temperature") == fields.get("top_p") == 1 and not reshaping(fields)


def reshaping(fields: Mapping[str, Any]) -> list[str]:
    """The fields, besides temperature and top_p, that change which tokens may be sampled."""
    return [
        name for name, values in _CHANGES_NOTHING.items() if fields.get(name) not in (None, *values)
    ]


def turn_seed(conversation: Conversation, turn: int) -> int:
    """A seed in [0, 2**31) for one turn.

    Not the conversation's seed itself: a server that seeds a generator per request would draw the
    same random numbers in every turn.
    """
    return random.Random(f"{conversation.seed}/{turn}").getrandbits(31)  # noqa: S311
