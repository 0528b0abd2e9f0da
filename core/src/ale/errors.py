"""The few kinds of error, and `Problem`, the one shape in which bad input is reported."""

from ale_strict.problems import AleError, InputError, Problem, nearest

__all__ = [
    "AleError",
    "ChunkError",
    "ContextLengthError",
    "GradingError",
    "InputError",
    "LLMError",
    "NotUsableError",
    "PluginError",
    "Problem",
    "ReplayError",
    "SandboxError",
    "SetupError",
    "StoreError",
    "UnsupportedError",
    "nearest",
]


class PluginError(AleError):
    """A plugin failed to load, broke its contract, or is not installed."""


class NotUsableError(AleError):
    """A component is installed but can't work on this machine; says what would make it work."""


class SandboxError(AleError):
    """The sandbox, not the command in it, failed. The episode is broken, not lost."""


class UnsupportedError(SandboxError):
    """The backend's capabilities say that it can't do this."""


class LLMError(AleError):
    """The model could not be asked. The episode is broken, not lost.

    Args:
        transient: asking again later may help (429, 500, a dropped connection, a timeout).
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        self.transient = transient
        super().__init__(message)


class ContextLengthError(LLMError):
    """The conversation is longer than the model's context. The agent decides what follows."""


class ReplayError(AleError):
    """A replayed beginning has led somewhere else than it once did. The episode is broken."""


class SetupError(AleError):
    """A setup step of the task failed. The episode is broken, not lost."""


class GradingError(AleError):
    """A criterion could not be judged. The episode is broken; its reward is None, never 0."""


class ChunkError(AleError):
    """A trajectory can't be cut this way (for example by token, where no tokens were recorded)."""


class StoreError(AleError):
    """A run directory can't be used: locked by a live process, unreadable, or of another schema."""
