"""The agent that runs the reference solution of a task."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ale.errors import SandboxError
from ale.protocols import AgentContext, Sandbox, Session
from ale.types import (
    Completion,
    ExecResult,
    Limits,
    Message,
    Observation,
    Stop,
    ToolCall,
    Turn,
)

if TYPE_CHECKING:
    from ale_agent_oracle.options import OracleOptions


class OracleAgent:
    """Runs ``task.solution``, one command a turn, in a session that lasts.

    Its trajectories look like those of a model with a ``shell`` tool. A command that fails is
    recorded, and the next one runs: the criteria judge.

    Args:
        monotonic: seconds from an arbitrary start; all durations and the time limit are by it.
    """

    def __init__(self, options: "OracleOptions", *, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic

    @property
    def limits(self) -> Limits:
        """As in the options."""
        return Limits(
            tool_timeout_s=self._options.tool_timeout_s, time_limit_s=self._options.time_limit_s
        )

    async def run(self, context: AgentContext) -> Stop:
        """Run the solution to its end, or to a limit."""
        solution = context.task.solution
        if solution is None:
            why = context.task.metadata.get("no_solution")
            return Stop(reason="gave_up", detail=str(why or "the task has no reference solution"))
        await _make_room(context)
        shell = _Shell(context.sandbox, self._options.max_output_bytes)
        try:
            stop = await self._run_all(solution, context, shell)
        except BaseException:
            with contextlib.suppress(SandboxError):  # what ended the run matters more
                await shell.close()
            raise
        # Ending the shell would end the server that a task may ask for.
        if not context.task.keep_processes:
            await shell.close()
        return stop

    async def _run_all(
        self, solution: Sequence[str], context: AgentContext, shell: "_Shell"
    ) -> Stop:
        limits, start = context.limits, self._monotonic()

        def time_left() -> float | None:
            used = self._monotonic() - start
            return None if limits.time_limit_s is None else limits.time_limit_s - used

        for i, command in enumerate(solution):
            left = time_left()
            if stop := _limit_reached(limits, i, left):
                return stop
            bounds = [s for s in (limits.tool_timeout_s, left) if s is not None]
            await self._turn(i, command, context, shell, min(bounds, default=None))
        detail = f"{len(solution)} commands of the solution were run"
        left = time_left()
        over = left is not None and left <= 0
        return Stop(reason="time_limit" if over else "finished", detail=detail)

    async def _turn(
        self, i: int, command: str, context: AgentContext, shell: "_Shell", timeout_s: float | None
    ) -> None:
        started = self._monotonic()
        call = ToolCall(id=f"oracle_{i}", name="shell", arguments=json.dumps({"command": command}))
        observation = Observation(
            call_id=call.id, tool=call.name, content="[cancelled]", error="cancelled"
        )
        try:
            result = await shell.run(command, timeout_s)
            seconds = self._monotonic() - started
            observation = _observation(call, result, timeout_s, seconds)
        except Exception as error:
            observation = _broken(call, error)
            raise
        finally:
            goal = Message(role="user", content=context.task.goal)
            context.recorder.append(
                Turn(
                    prompt=(goal,) if i == 0 else (),
                    fresh_context=i == 0,
                    completion=Completion(
                        message=Message(role="assistant", tool_calls=(call,)),
                        finish_reason="tool_calls",
                        model="oracle",
                    ),
                    observations=(observation,),
                    duration_s=self._monotonic() - started,
                )
            )


async def _make_room(context: AgentContext) -> None:
    """Make the folder that the solution's files go to, which its user may not be allowed to.

    It is absolute, so never where a sandbox has the files of this machine. A solution has to see to
    it itself where it can't be made.
    """
    folder = context.task.metadata.get("solution_folder")
    if folder is None or not context.sandbox.capabilities.filesystem_isolation:
        return
    with _empty_folder() as empty, contextlib.suppress(OSError):
        await context.sandbox.upload(empty, str(folder))


@contextlib.contextmanager
def _empty_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


class _Shell:
    """One session, opened again when it has ended."""

    def __init__(self, sandbox: Sandbox, max_output_bytes: int) -> None:
        self._sandbox = sandbox
        self._max_output_bytes = max_output_bytes
        self._session: Session | None = None

    async def run(self, command: str, timeout_s: float | None) -> ExecResult:
        if self._session is None or self._session.closed:
            self._session = await self._sandbox.session()
        return await self._session.run(
            command, timeout_s=timeout_s, max_output_bytes=self._max_output_bytes
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _limit_reached(limits: Limits, n_done: int, left: float | None) -> Stop | None:
    detail = f"{n_done} commands of the solution were run"
    if limits.max_steps is not None and n_done >= limits.max_steps:
        return Stop(reason="max_steps", detail=detail)
    if limits.max_turns is not None and n_done >= limits.max_turns:
        return Stop(reason="max_turns", detail=detail)
    if left is not None and left <= 0:
        return Stop(reason="time_limit", detail=detail)
    return None


def _observation(
    call: ToolCall, result: ExecResult, timeout_s: float | None, seconds: float
) -> Observation:
    error = f"exit code {result.exit_code}" if result.exit_code else None
    if result.timed_out:
        error = f"timed out after {timeout_s or 0.0:.4g} s"
    parts = [
        result.stdout.decode("utf-8", "backslashreplace"),
        result.stderr.decode("utf-8", "backslashreplace"),
        f"[{error or 'exit code 0'}]",
    ]
    return Observation(
        call_id=call.id,
        tool=call.name,
        content="\n".join(part.removesuffix("\n") for part in parts if part),
        error=error,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        truncated=result.truncated,
        duration_s=seconds,
    )


def _broken(call: ToolCall, error: Exception) -> Observation:
    text = f"{type(error).__name__}: {error}"
    return Observation(call_id=call.id, tool=call.name, content=f"[{text}]", error=text)
