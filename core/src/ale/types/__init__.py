"""The records that pass between stages: frozen, keyword-only, versioned by `schema`."""

from ale.types._record import record, replace
from ale.types.chunk import Chunk, Range, Span
from ale.types.credit import BatchStatistics, Credit, CreditedEpisode, Group, Rollout
from ale.types.episode import Episode, Failure, Limits, Score, Stage
from ale.types.event import (
    EpisodeFinished,
    EpisodeStage,
    RunFinished,
    RunStarted,
    StepFinished,
)
from ale.types.message import (
    Completion,
    CompletionRequest,
    Conversation,
    FinishReason,
    LLMCapabilities,
    Message,
    Role,
    Sampling,
    TokenTrace,
    ToolCall,
    ToolSpec,
    Usage,
)
from ale.types.sandbox import (
    Capabilities,
    Enforcement,
    ExecResult,
    ForkCost,
    Rung,
    SandboxInfo,
    SandboxSpec,
)
from ale.types.task import Constraints, CriterionSpec, Environment, Task
from ale.types.training import Batch, CreditedGroup, PolicySnapshot, StepReport
from ale.types.trajectory import Observation, Stop, StopReason, Trajectory, Turn

__all__ = [
    "Batch",
    "BatchStatistics",
    "Capabilities",
    "Chunk",
    "Completion",
    "CompletionRequest",
    "Constraints",
    "Conversation",
    "Credit",
    "CreditedEpisode",
    "CreditedGroup",
    "CriterionSpec",
    "Enforcement",
    "Environment",
    "Episode",
    "EpisodeFinished",
    "EpisodeStage",
    "ExecResult",
    "Failure",
    "FinishReason",
    "ForkCost",
    "Group",
    "LLMCapabilities",
    "Limits",
    "Message",
    "Observation",
    "PolicySnapshot",
    "Range",
    "Role",
    "Rollout",
    "RunFinished",
    "RunStarted",
    "Rung",
    "Sampling",
    "SandboxInfo",
    "SandboxSpec",
    "Score",
    "Span",
    "Stage",
    "StepFinished",
    "StepReport",
    "Stop",
    "StopReason",
    "Task",
    "TokenTrace",
    "ToolCall",
    "ToolSpec",
    "Trajectory",
    "Turn",
    "Usage",
    "record",
    "replace",
]
