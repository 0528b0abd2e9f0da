"""The protocols that the products of plugins implement.

`ale.testing` has a contract kit for each; a product that passes its kit works with every other
part.
"""

# These modules import records only for annotations: building the records would double the time
# of `ale --help`.
from ale.protocols.agent import Agent, AgentContext, Recorder, SparesSandbox
from ale.protocols.executor import CheckableExecutor, Executor, RunningRun, Workers
from ale.protocols.launcher import LOGS, LOST, Launch, Launched, Launcher, Process, Role
from ale.protocols.llm import (
    LLM,
    Checkable,
    KnowsTokenizer,
    Policy,
    PolicyModel,
    ServedPolicy,
    TrainablePolicy,
)
from ale.protocols.members import missing
from ale.protocols.middleware import Middleware, MiddlewareContext, Rewritten
from ale.protocols.objective import Objective, Terms, Tokens
from ale.protocols.sandbox import (
    DEFAULT_OUTPUT_BYTES,
    FEATURES,
    ChangesNetwork,
    CheckableBackend,
    Guarded,
    HasAgentUser,
    HasServiceContainers,
    Judge,
    ListsSessions,
    MakesScratchFolders,
    OpensJudge,
    OpensSiblings,
    Sandbox,
    SandboxBackend,
    ServiceContainer,
    Session,
    SwitchesUser,
)
from ale.protocols.start import (
    Expert,
    RecordedExpert,
    Restoring,
    RestoringScheme,
    Start,
    StartScheme,
)
from ale.protocols.task import Criterion, NeedsTools, RunsPrograms, TaskSource
from ale.protocols.training import (
    BackgroundSaver,
    Chunker,
    ComparesRollouts,
    CreditScheme,
    CriticCredit,
    CriticTrainer,
    ExplainsObjective,
    IgnoresDemonstrations,
    ObjectiveFacts,
    ObjectivePart,
    Trainer,
)

__all__ = [
    "DEFAULT_OUTPUT_BYTES",
    "FEATURES",
    "LLM",
    "LOGS",
    "LOST",
    "Agent",
    "AgentContext",
    "BackgroundSaver",
    "ChangesNetwork",
    "Checkable",
    "CheckableBackend",
    "CheckableExecutor",
    "Chunker",
    "ComparesRollouts",
    "CreditScheme",
    "Criterion",
    "CriticCredit",
    "CriticTrainer",
    "Executor",
    "Expert",
    "ExplainsObjective",
    "Guarded",
    "HasAgentUser",
    "HasServiceContainers",
    "IgnoresDemonstrations",
    "Judge",
    "KnowsTokenizer",
    "Launch",
    "Launched",
    "Launcher",
    "ListsSessions",
    "MakesScratchFolders",
    "Middleware",
    "MiddlewareContext",
    "NeedsTools",
    "Objective",
    "ObjectiveFacts",
    "ObjectivePart",
    "OpensJudge",
    "OpensSiblings",
    "Policy",
    "PolicyModel",
    "Process",
    "RecordedExpert",
    "Recorder",
    "Restoring",
    "RestoringScheme",
    "Rewritten",
    "Role",
    "RunningRun",
    "RunsPrograms",
    "Sandbox",
    "SandboxBackend",
    "ServedPolicy",
    "ServiceContainer",
    "Session",
    "SparesSandbox",
    "Start",
    "StartScheme",
    "SwitchesUser",
    "TaskSource",
    "Terms",
    "Tokens",
    "TrainablePolicy",
    "Trainer",
    "Workers",
    "missing",
]
