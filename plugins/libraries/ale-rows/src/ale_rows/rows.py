"""The rows of each file. The published JSON Schemas are generated from these classes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ale.text import counted
from ale.types import BatchStatistics, Chunk, Credit, Episode, ToolSpec, partition_problem

SCHEMA = 1
"""The version that is written; each kind of row has its own version, and all are at 1."""

Pairing = Literal["same-prompt", "same-trajectory"]
Schema = Annotated[Literal[1], Meta(description="Version of the row.")]
Tools = Annotated[
    tuple[ToolSpec, ...] | None,
    Meta(
        description="Override of the tools recorded with the turns, for episodes without them; "
        "null: as recorded."
    ),
]
Run = Annotated[str, Meta(description="`run_id` of the run, or the file it was imported from.")]
Task = Annotated[str, Meta(description="Id of the task.")]
EpisodeId = Annotated[str, Meta(description="Id of the episode within its run.")]


class ChatFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The function of a call."""

    name: str
    arguments: Annotated[
        str, Meta(description="JSON, as the model wrote it; it need not be valid.")
    ]


class ChatCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a message."""

    id: str
    type: Literal["function"] = "function"
    function: ChatFunction


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of chat completions, TRL and chat templates; empty fields are omitted."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ChatCall, ...] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


Messages = tuple[ChatMessage, ...]


class ChatToolFunction(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a tool."""

    name: str
    description: str = ""
    parameters: Annotated[Mapping[str, Any], Meta(description="A JSON Schema of an object.")] = (
        msgspec.field(default_factory=dict)
    )


class ChatTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of chat completions and chat templates."""

    type: Literal["function"] = "function"
    function: ChatToolFunction


ChatTools = Annotated[
    tuple[ChatTool, ...] | None,
    Meta(description="Tools that the model was given; null if none or unknown."),
]


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``raw.jsonl``: an episode and its run."""

    schema: Schema = 1
    kind: Literal["episode"] = "episode"
    run: Run
    tools: Tools = None
    crediting: Annotated[
        Mapping[str, Any] | None,
        Meta(
            description="Sections `chunker` and `credit` of the run's config, which `ale data "
            "score` takes; null: the run had none."
        ),
    ] = None
    episode: Episode


class ScoredRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``scored.jsonl``: an episode, its chunks and their credit."""

    schema: Schema = 1
    kind: Literal["scored"] = "scored"
    run: Run
    tools: Tools = None
    chunker: Annotated[str, Meta(description="Chunker.")]
    scheme: Annotated[str, Meta(description="Credit scheme.")]
    batch: Annotated[
        BatchStatistics, Meta(description="Of all graded episodes of the file: the baseline.")
    ]
    chunks: tuple[Chunk, ...]
    credit: Credit
    episode: Episode

    def __post_init__(self) -> None:
        if problem := partition_problem(self.episode.trajectory, self.chunks):
            raise ValueError(f"the chunks do not fit the episode: {problem}")
        if [chunk.index for chunk in self.chunks] != [*range(len(self.chunks))]:
            raise ValueError("the chunks are not in the order of their indices")
        columns = (self.credit.rewards, self.credit.returns, self.credit.weights)
        if any(len(column) != len(self.chunks) for column in columns):
            rewards, returns, weights = map(len, columns)
            raise ValueError(
                f"the credit has {rewards} rewards, {returns} returns and {weights} weights for "
                f"{counted(len(self.chunks), 'chunk')}"
            )


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where one side of a pair comes from."""

    run: Run
    episode: EpisodeId
    turn: Annotated[int, Meta(description="0-based turn in which the answer starts.")]
    chunk: Annotated[
        int | None, Meta(description="Index of the chunk; null if the answer is a whole turn.")
    ] = None
    value: Annotated[
        float | None,
        Meta(description="Value that the sides were compared by; null for imported preferences."),
    ] = None


class DpoRow(msgspec.Struct, frozen=True, kw_only=True):
    """A preference: TRL's conversational format with an explicit prompt, and its origin."""

    schema: Schema = 1
    kind: Literal["dpo"] = "dpo"
    prompt: Messages
    chosen: Messages
    rejected: Messages
    tools: ChatTools = None
    pairing: Pairing
    task: Task
    chosen_from: Origin
    rejected_from: Origin


class SftRow(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation for imitation."""

    schema: Schema = 1
    kind: Literal["sft"] = "sft"
    messages: Messages
    loss_weights: Annotated[
        tuple[float, ...],
        Meta(description="One per message: 1 for an answer to train on, else 0."),
    ]
    tools: ChatTools = None
    run: Run
    episode: EpisodeId
    task: Task
    reward: Annotated[float | None, Meta(description="Of the episode; null if not graded.")]

    def __post_init__(self) -> None:
        weights, messages = len(self.loss_weights), len(self.messages)
        if weights != messages:
            raise ValueError(f"{weights} loss_weights for {counted(messages, 'message')}")


class ChunkTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a chunk within one turn, as sampled."""

    prompt_ids: Annotated[tuple[int, ...], Meta(description="All tokens before the chunk.")]
    ids: tuple[int, ...]
    logprobs: Annotated[
        tuple[float, ...], Meta(description="Natural, of the sampler, one per token.")
    ]
    policy_versions: tuple[int, ...]


class RlRow(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk in one context: the conversation before it, its answers and calls, its credit."""

    schema: Schema = 1
    kind: Literal["rl"] = "rl"
    run: Run
    episode: EpisodeId
    task: Task
    step: Annotated[int, Meta(description="Training step in which it was sampled.")]
    rollout: int
    chunk: Annotated[
        int,
        Meta(
            description="0-based, in its trajectory. Rows have the same one where it continues in "
            "a new context."
        ),
    ]
    chunk_kind: str
    scheme: str
    episode_reward: float
    reward: Annotated[float, Meta(description="r_k, of the chunk itself.")]
    return_: Annotated[float, Meta(description="G_k, discounted.")] = msgspec.field(name="return")
    weight: Annotated[float, Meta(description="Factor of grad log pi of its tokens.")]
    prompt: Messages
    prefix: Annotated[
        ChatMessage | None,
        Meta(description="Part of the same answer before the chunk; null at its start."),
    ] = None
    completion: Messages
    tools: ChatTools = None
    tokens: Annotated[
        tuple[ChunkTokens, ...] | None,
        Meta(description="One entry per turn of the row; null if not recorded."),
    ] = None


Row = EpisodeRow | ScoredRow | DpoRow | SftRow | RlRow
RowT = TypeVar("RowT", EpisodeRow, ScoredRow, DpoRow, SftRow, RlRow)

KINDS: dict[str, type[Any]] = {
    "episode": EpisodeRow,
    "scored": ScoredRow,
    "dpo": DpoRow,
    "sft": SftRow,
    "rl": RlRow,
}
"""By `kind`."""

MADE_BY = {
    "episode": "ale data collect",
    "scored": "ale data score",
    "dpo": "ale data dpo",
    "sft": "ale data sft",
    "rl": "ale data rl",
}
"""The command that writes each kind."""
