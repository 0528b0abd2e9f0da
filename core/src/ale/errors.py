"""The error classes, and `Problem`, which describes one mistake in an input."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from attrs import frozen

__all__ = [
    "AleError",
    "ChunkError",
    "ContextLengthError",
    "GradingError",
    "InputError",
    "LLMError",
    "LLMLostError",
    "LaunchError",
    "LostProcessError",
    "NoVerdictError",
    "NotUsableError",
    "PluginError",
    "Problem",
    "ReplayError",
    "SandboxDamagedError",
    "SandboxError",
    "SandboxLostError",
    "SetupError",
    "StoreError",
    "ToolsUnsupportedError",
    "UnsupportedError",
    "nearest",
]


@frozen(kw_only=True)
class Problem:
    """One mistake in a config, a task or a stored run."""

    message: str
    """The mistake, in one line."""
    file: str | None = None
    line: int | None = None
    """1-based."""
    path: str | None = None
    """Path inside the document: ``sandbox.image`` or ``success_criteria[1].command``."""
    expected: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f"{self.line}:"
        where = "" if self.file is None else f"{self.file}:{line} "
        path = "" if self.path is None else f"{self.path}: "
        text = f"{where}{path}{self.message}"
        if self.expected is not None:
            text += f"\n    expected  {self.expected}"
        if self.hint is not None:
            text += f"\n    hint      {self.hint}"
        return text


_SHORTEST_PART = 3


def nearest(name: str, names: Iterable[str]) -> str | None:
    """``did you mean 'image'?``, a hint for a `Problem`, or None where no name is similar."""
    import difflib  # imported here: needed only for errors

    known = list(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not close and len(name) >= _SHORTEST_PART:
        # A name may also be a part of another: 'url' of 'base_url'.
        close = sorted((each for each in known if name.lower() in each.lower()), key=len)
    return f"did you mean '{close[0]}'?" if close else None


class AleError(Exception):
    """Every error that `ale` raises on purpose."""

    exit_status: ClassVar[int] = 1
    """Exit status of a command that ends with this error."""


class InputError(AleError):
    """An input of the user is invalid. Carries every problem found, not only the first.

    The command line prints the problems and exits with status 2 before anything is started.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(
        cls,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        path: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
    ) -> "InputError":
        """An error with a single `Problem`."""
        problem = Problem(
            message=message, file=file, line=line, path=path, expected=expected, hint=hint
        )
        return cls([problem])


class PluginError(AleError):
    """A plugin failed to load, broke its contract, or is not installed."""


class NotUsableError(AleError):
    """A component is installed but can't work on this machine; the message says how to fix it."""


class SandboxError(AleError):
    """The sandbox, not the command in it, failed. The episode is broken."""


class SandboxDamagedError(SandboxError):
    """The sandbox can't run commands after what ran in it; its engine and machine are well.

    A backend raises it if it has evidence: the sandbox was out of memory by its own limit, or its
    shell is gone. If the agent had begun, it has failed: the episode is graded, and a criterion
    that can't be met gives 0. Before that, the episode is broken.
    """


class SandboxLostError(SandboxError):
    """The sandbox has ended, and nothing shows whether what ran in it ended it, or somebody else.

    The option ``run.lost_sandbox`` decides whether the episode is broken or graded.
    """


class UnsupportedError(SandboxError):
    """The backend's capabilities say that it can't do this."""


class LLMError(AleError):
    """The model gave no answer. The episode is broken.

    Args:
        transient: a retry may succeed (429, 500, a dropped connection, a timeout).
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        self.transient = transient
        super().__init__(message)


class LLMLostError(LLMError):
    """The server that sampled was lost with the answer, and no other one gave it.

    Unlike another error of the model, this is one of the infrastructure: the episode is tried again
    as often as ``run.retries`` says.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


class ContextLengthError(LLMError):
    """The conversation is longer than the model's context. The agent decides how to continue."""


class ToolsUnsupportedError(LLMError):
    """The server takes no tool specifications for this model. An agent may write calls as text."""


class ReplayError(AleError):
    """Replaying an expert's turns led to other observations. The episode is broken."""


class SetupError(AleError):
    """A setup step of the task failed. The episode is broken."""


class GradingError(AleError):
    """A criterion could not be evaluated. The episode is broken; its reward is None, not 0."""


class NoVerdictError(GradingError):
    """Programs in the sandbox came to no verdict: an interpreter that does not start, no report.

    In the agent's sandbox the criterion is asked a second time, and then in a fresh one of the
    task. If only the fresh one gives a score, the agent is the cause: the criterion gives 0. Else
    the episode is broken.
    """


class ChunkError(AleError):
    """A trajectory can't be split this way (for example by token, where none were recorded)."""


class LaunchError(AleError):
    """A launcher's system refused to start something, or can't be reached."""


class LostProcessError(AleError):
    """A process that the run needs was killed. The same command continues the run from its files.

    Its exit status is that of a temporary failure (EX_TEMPFAIL of sysexits): launchers start the
    run again.
    """

    exit_status = 75


class StoreError(AleError):
    """A run directory can't be used: locked by a live process, unreadable, or of another schema."""
