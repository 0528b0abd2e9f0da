"""Requests to a model and its completions, with exact tokens where the model provides them."""

from collections.abc import Mapping
from typing import Any, Literal

from ale.types._record import record

Role = Literal["system", "user", "assistant", "tool"]


@record
class ToolCall:
    """A call as the model wrote it. `arguments` stays text: it may not be valid JSON."""

    id: str
    name: str
    arguments: str


@record
class Message:
    """One message of a conversation."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    """The model's reasoning, if the provider returns it separately from the content."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """For role ``tool``: the call that this answers."""


@record
class ToolSpec:
    """A tool that the model may call. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@record
class Sampling:
    """How to sample. None leaves a value to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@record
class Conversation:
    """Which episode a request belongs to.

    A policy in this process keys its prefix cache by `episode_id`; a scripted model finds its
    answers by `task_id` and `rollout`; a provider that supports seeds gets `seed`.
    """

    episode_id: str
    task_id: str
    rollout: int
    seed: int


@record
class CompletionRequest:
    """One request to a model."""

    messages: tuple[Message, ...]
    """The whole conversation, oldest first."""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    conversation: Conversation
    turn: int
    """0-based number of this completion in the episode."""
    fresh_context: bool = True
    """False when `messages` extends the previous turn's messages and answer."""


@record
class Usage:
    """Tokens, as the provider counts them; 0 where it says nothing."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@record
class TokenTrace:
    """The exact tokens of one completion, as sampled.

    `output_ids`, `logprobs` and `policy_versions` have one entry per generated token; the
    log-probabilities (natural) are those of the sampler itself, after temperature and top-p.
    `text_offsets`, where known, has the index into the message's content at which each token
    starts, so that a span of text can be mapped to its tokens.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_versions: tuple[int, ...]
    text_offsets: tuple[int, ...] | None = None


FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@record
class Completion:
    """One answer of a model."""

    message: Message
    """Role ``assistant``."""
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    tokens: TokenTrace | None = None
    """None if the provider gives no token ids: text is never tokenised again to fill it."""
    forced: bool = False
    """The answer was given to the model, not sampled from it: a demonstration, or the replayed
    beginning of an expert's episode. Its chunks are used for imitation only."""


@record
class LLMCapabilities:
    """The features of a model component. Trainers that need token ids check them at the start."""

    tools: bool = True
    """Takes tool specifications and answers with tool calls."""
    token_ids: bool = False
    logprobs: bool = False
    deterministic: bool = False
    """The same request with the same seed always gives the same answer."""
