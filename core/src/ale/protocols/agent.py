"""Agents, and the context they work in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ale.protocols.llm import LLM
    from ale.protocols.sandbox import Sandbox
    from ale.types import Conversation, Limits, Stop, Task, Turn


class Recorder(Protocol):
    """Records each turn as soon as it is over, so that a cancelled agent loses none."""

    @property
    def turns(self) -> Sequence[Turn]: ...

    def append(self, turn: Turn) -> None: ...


@frozen(kw_only=True)
class AgentContext:
    """Everything that an agent is given for one episode."""

    task: Task
    sandbox: Sandbox
    llm: LLM
    limits: Limits
    """The agent's own limits, tightened by the task's constraints."""
    conversation: Conversation
    recorder: Recorder = field(repr=False)


@runtime_checkable
class Agent(Protocol):
    """Lets a model act in a sandbox until the task is done or a limit is reached."""

    @property
    def limits(self) -> Limits:
        """The limits of its options."""
        ...

    async def run(self, context: AgentContext) -> Stop:
        """Work on the task, appending each turn to the recorder.

        Must stop at each limit. The run cancels it some seconds after `time_limit_s`; what has been
        recorded by then is stored and graded.

        Raises:
            LLMError, SandboxError: the infrastructure failed; the episode is broken.
            SandboxDamagedError: the agent has damaged its sandbox; the episode is graded.
            Exception: a bug in the agent; the episode is broken and the traceback is stored.
        """
        ...


@runtime_checkable
class SparesSandbox(Protocol):
    """An agent that says whether it uses the sandbox; others are taken to do so."""

    @property
    def uses_sandbox(self) -> bool:
        """False: it leaves the sandbox as it was, and grading needs no other."""
        ...
