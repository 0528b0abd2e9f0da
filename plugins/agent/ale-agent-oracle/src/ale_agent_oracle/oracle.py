"""The agent that runs the reference solution of a task."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ale.agents import EpisodeLoop, Shell, shell_observation
from ale.errors import AleError
from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.text import counted
from ale.types import Completion, Limits, Message, Observation, Stop, ToolCall, Turn
from ale_agent_oracle.options import OracleOptions

MAX_OUTPUT_BYTES = 16384
"""Recorded of each of a command's stdout and stderr: head and tail."""


class OracleAgent:
    """Runs ``task.solution``, one command a turn, in a session that lasts.

    Its trajectories look like those of a model with a ``shell`` tool. A command that fails is
    recorded, and the next one runs: the criteria judge.
    """

    def __init__(self, options: OracleOptions, context: BuildContext) -> None:
        self._options = options
        self._monotonic = context.monotonic

    @property
    def limits(self) -> Limits:
        """As in the options."""
        return Limits(
            tool_timeout_s=self._options.tool_timeout_s, time_limit_s=self._options.time_limit_s
        )

    async def run(self, context: AgentContext) -> Stop:
        """Run the solution to its end, or to a limit.

        Raises:
            AleError: there is none, so that a reward would say nothing.
        """
        solution = context.task.solution
        if solution is None:
            why = context.task.metadata.get("no_solution")
            raise AleError(f"nothing to run: {why or 'the task has no reference solution'}")
        await _make_folder(context)
        return await Commands(self._options, solution, self._monotonic, context).run()


class Commands(EpisodeLoop):
    """A loop whose model is a list of commands.

    Args:
        options: of the agent.
        commands: to run, one a turn.
        monotonic: seconds from an arbitrary start.
        name: the name of the model in its turns, and of the commands in how it ends.
    """

    def __init__(
        self,
        options: OracleOptions,
        commands: Sequence[str],
        monotonic: Callable[[], float],
        context: AgentContext,
        name: str = "oracle",
    ) -> None:
        shell = Shell(context.sandbox, max_output_bytes=MAX_OUTPUT_BYTES)
        super().__init__(context, monotonic=monotonic, shell=shell)
        self._commands = commands
        self._name = name
        if not commands:
            self.stop = self._ended()

    async def ask(self) -> Turn:
        """The next command, as a model would call it."""
        i = self.budget.turns
        arguments = json.dumps({"command": self._commands[i]})
        call = ToolCall(id=f"{self._name}_{i}", name="shell", arguments=arguments)
        return Turn(
            prompt=self.head() if i == 0 else (),
            fresh_context=i == 0,
            completion=Completion(
                message=Message(role="assistant", tool_calls=(call,)),
                finish_reason="tool_calls",
                model=self._name,
            ),
        )

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        """Run it."""
        command = json.loads(call.arguments)["command"]
        return shell_observation(call, await self.shell.run(command, timeout_s), timeout_s)

    def observed(self, turn: Turn) -> None:
        """After the last command the episode is over."""
        if self.budget.turns == len(self._commands):
            self.stop = self._ended()

    def _ended(self) -> Stop:
        what = "solution" if self._name == "oracle" else "attack"
        detail = f"ran {counted(len(self._commands), 'command')} of the {what}"
        over = self.budget.time_left() == 0.0
        return Stop(reason="time_limit" if over else "finished", detail=detail)


async def _make_folder(context: AgentContext) -> None:
    """Make the folder that the solution's files go to, which its user may not be allowed to.

    It is absolute, so never where a sandbox has the files of this machine. A solution has to see to
    it itself where it can't be made. Files that are too many for commands are put there.

    Raises:
        AleError: the sandbox can't have these files.
    """
    folder = context.task.metadata.get("solution_folder")
    files = context.task.metadata.get("solution_files")
    if folder is None or not context.sandbox.capabilities.filesystem_isolation:
        if files is not None:
            raise AleError("the solution's files need a sandbox with files of its own")
        return
    if files is not None:
        await context.sandbox.upload(Path(str(files)), str(folder))
        return
    with _empty_folder() as empty, contextlib.suppress(OSError):
        await context.sandbox.upload(empty, str(folder))


@contextlib.contextmanager
def _empty_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
