"""The contract of agents. Derive a test class from `AgentContract` and override its fixtures."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import LLMError, SandboxError
from ale.protocols import Agent, AgentContext
from ale.testing import builders
from ale.testing._marks import async_tests
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder
from ale.testing.waiting import until
from ale.types import (
    Completion,
    CompletionRequest,
    FinishReason,
    Limits,
    Message,
    Stop,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    Usage,
    replace,
)

PATIENCE_S = 20.0
"""Seconds within which an agent must end by itself."""
MANY = 60
"""Number of commands by a model that does not end the episode."""

Answer = Completion | Exception | Callable[[CompletionRequest], Completion]


def answer(
    text: str = "",
    *calls: tuple[str, str],
    usage: tuple[int, int] = (0, 0),
    finish_reason: FinishReason = "stop",
) -> Completion:
    """An answer of a model: `text`, then calls of (tool, arguments as JSON).

    Args:
        usage: tokens of prompt and completion, as the provider counts them.
    """
    made = tuple(ToolCall(id=f"call_{i}", name=n, arguments=a) for i, (n, a) in enumerate(calls))
    return Completion(
        message=Message(role="assistant", content=text, tool_calls=made),
        finish_reason="tool_calls" if made and finish_reason == "stop" else finish_reason,
        usage=Usage(prompt_tokens=usage[0], completion_tokens=usage[1]),
    )


def call(name: str, /, **arguments: Any) -> Completion:
    """An answer without text that calls one tool."""
    return answer("", (name, json.dumps(arguments)))


def shell_call(command: str) -> Completion:
    """An answer that calls a tool ``shell`` with the argument ``command``."""
    return call("shell", command=command)


class AgentAttempt:
    """One agent at work on one task in one real folder."""

    def __init__(
        self, agent: Agent, task: Task, answers: Sequence[Answer], limits: Limits, episode: str
    ) -> None:
        self.sandbox = FolderSandbox()
        self.recorder = ListRecorder()
        self.llm = WatchedLLM(answers, self.recorder)
        self.context = AgentContext(
            task=task,
            sandbox=self.sandbox,
            llm=self.llm,
            limits=limits,
            conversation=builders.conversation(episode),
            recorder=self.recorder,
        )
        self._agent = agent

    async def run(self) -> Stop:
        """Run the agent; fails if it does not end by itself."""
        timer = asyncio.timeout(PATIENCE_S)
        try:
            async with timer:
                return await self._agent.run(self.context)
        except TimeoutError:
            assert not timer.expired(), f"the agent did not end by itself in {PATIENCE_S:g} s"
            raise

    async def grows(self, name: str, n_lines: int = 0) -> None:
        """Wait until a file has more than `n_lines` lines; fails after `PATIENCE_S`."""
        await until(lambda: len(self.lines(name)) > n_lines, f"another line in {name}", PATIENCE_S)

    async def hangs(self) -> None:
        """Wait until the agent has asked for an answer that the model does not give."""
        await until(lambda: self.llm.hanging, "another question to the model", PATIENCE_S)

    @property
    def trajectory(self) -> Trajectory:
        """The recorded trajectory."""
        return Trajectory(turns=tuple(self.recorder.turns))

    def lines(self, name: str) -> list[str]:
        """Lines of a file of the workspace; none if it does not exist."""
        file = Path(self.sandbox.workdir) / name
        return file.read_text().splitlines() if file.exists() else []


class WatchedLLM(FakeLLM):
    """Notes the number of recorded turns at each request; hangs once it has no answers left."""

    def __init__(self, answers: Sequence[Answer], recorder: ListRecorder) -> None:
        super().__init__(answers)
        self.turns_on_record: list[int] = []
        self.hanging = False
        self._left = len(answers)
        self._recorder = recorder

    async def complete(self, request: CompletionRequest) -> Completion:
        """The next answer."""
        self.turns_on_record.append(len(self._recorder.turns))
        self._left -= 1
        if self._left < 0:
            self.hanging = True
            await asyncio.Event().wait()
        return await super().complete(request)


class AgentAttempts:
    """Sets up episodes for one agent, and removes their folders."""

    def __init__(
        self,
        agent: Agent,
        *,
        action: Callable[[str], Completion] = shell_call,
        ending: Completion | None = None,
        make_task: Callable[[Sequence[str]], Task] = lambda commands: builders.task(),
    ) -> None:
        self.agent = agent
        self._action = action
        self._ending = [] if ending is None else [ending]
        self._make_task = make_task
        self._made: list[AgentAttempt] = []

    def __call__(
        self,
        *commands: str,
        then: Sequence[Answer] | None = None,
        episode: str = "0-demo-0",
        keep_processes: bool = False,
        **limits: Any,
    ) -> AgentAttempt:
        """An episode in which the agent is to run `commands`.

        Args:
            then: the model's answers after the commands; default: the one that ends the episode.
            limits: fields of `Limits` that are tighter than the agent's own.
        """
        rest: Sequence[Answer] = self._ending if then is None else then
        attempt = AgentAttempt(
            self.agent,
            replace(self._make_task(commands), keep_processes=keep_processes),
            [*(self._action(command) for command in commands), *rest],
            replace(self.agent.limits, **limits),
            episode,
        )
        self._made.append(attempt)
        return attempt

    async def close(self) -> None:
        """Remove every folder."""
        for attempt in self._made:
            await attempt.sandbox.close()


@async_tests
class AgentContract:
    """The contract of every agent, tested with real commands in a real folder.

    Override `agent`; then, if your agent differs from the defaults, `action`, `ending`,
    `make_task`, `uses_model`, `acts`.
    """

    # -- for the author to override

    @pytest.fixture
    def agent(self) -> Agent:
        """The agent. Its own limits must allow some sixty quick commands."""
        raise NotImplementedError

    @pytest.fixture
    def action(self) -> Callable[[str], Completion]:
        """The answer by which a model makes this agent run a shell command in the sandbox."""
        return shell_call

    @pytest.fixture
    def ending(self) -> Completion | None:
        """The answer by which a model ends the episode; None if the agent ends by itself."""
        return call("finish", summary="done")

    @pytest.fixture
    def make_task(self) -> Callable[[Sequence[str]], Task]:
        """A task for an agent that is to run the given commands.

        An agent that asks no model takes the commands from here; others get them by `action`.
        """
        return lambda commands: builders.task()

    @pytest.fixture
    def uses_model(self) -> bool:
        """Does it ask the model? If not, tests about the model are skipped."""
        return True

    @pytest.fixture
    def acts(self) -> bool:
        """Does it run commands? If not, tests about commands are skipped."""
        return True

    # -- made from these

    @pytest_asyncio.fixture
    async def attempts(
        self,
        agent: Agent,
        action: Callable[[str], Completion],
        ending: Completion | None,
        make_task: Callable[[Sequence[str]], Task],
    ) -> AsyncIterator[AgentAttempts]:
        made = AgentAttempts(agent, action=action, ending=ending, make_task=make_task)
        yield made
        await made.close()

    @pytest.fixture
    def acting(self, acts: bool) -> None:
        if not acts:
            pytest.skip("this agent runs no commands")

    @pytest.fixture
    def asking(self, uses_model: bool) -> None:
        if not uses_model:
            pytest.skip("this agent asks no model")

    # -- what is done and what is recorded

    async def test_an_episode_without_limits_ends_as_finished(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one > file")
        assert (await attempt.run()).reason == "finished"

    @pytest.mark.usefixtures("acting")
    async def test_commands_are_run_in_order_and_their_output_is_observed(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo first > file", "echo second >> file", "cat file")
        await attempt.run()
        assert attempt.lines("file") == ["first", "second"]
        shown = "\n".join(o.content for turn in attempt.recorder.turns for o in turn.observations)
        assert "first\nsecond" in shown

    @pytest.mark.usefixtures("acting")
    async def test_a_failing_command_is_an_error_and_not_the_end(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("false", "echo on > file")
        await attempt.run()
        failed, worked = attempt.recorder.turns[:2]
        assert [o.error is None for o in failed.observations] == [False]
        assert [o.error is None for o in worked.observations] == [True]
        assert attempt.lines("file") == ["on"]

    async def test_calls_and_observations_are_one_to_one(self, attempts: AgentAttempts) -> None:
        attempt = attempts("echo one", "false", "echo two")
        await attempt.run()
        _assert_paired(attempt.recorder.turns)

    @pytest.mark.usefixtures("acting")
    async def test_the_context_starts_anew_in_the_first_turn(self, attempts: AgentAttempts) -> None:
        attempt = attempts("echo one", "echo two")
        await attempt.run()
        assert [turn.fresh_context for turn in attempt.recorder.turns[:2]] == [True, False]

    @pytest.mark.usefixtures("asking")
    async def test_a_turn_is_recorded_before_the_model_is_asked_again(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one", "echo two", "echo three")
        await attempt.run()
        assert attempt.llm.turns_on_record[:3] == [0, 1, 2]

    @pytest.mark.usefixtures("asking")
    async def test_the_record_gives_back_what_the_model_was_asked(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one", "false", "echo two")
        await attempt.run()
        for request in attempt.llm.requests:
            turn = attempt.recorder.turns[request.turn]
            assert attempt.trajectory.messages(request.turn) == request.messages
            assert turn.fresh_context == request.fresh_context

    @pytest.mark.usefixtures("asking")
    async def test_requests_say_which_episode_and_which_turn_they_are_of(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one", "echo two", episode="3-demo-1")
        await attempt.run()
        assert {request.conversation.episode_id for request in attempt.llm.requests} == {"3-demo-1"}
        assert [request.turn for request in attempt.llm.requests[:2]] == [0, 1]

    @pytest.mark.usefixtures("acting")
    async def test_two_episodes_at_once_are_kept_apart(self, attempts: AgentAttempts) -> None:
        one = attempts("echo one > file", "sleep 0.1; cat file", episode="0-demo-0")
        two = attempts("echo two > file", "sleep 0.1; cat file", episode="0-demo-1")
        await asyncio.gather(one.run(), two.run())
        assert (one.lines("file"), two.lines("file")) == (["one"], ["two"])
        for attempt, other in ((one, "two"), (two, "one")):
            assert len(attempt.recorder.turns) >= 2
            assert other not in attempt.recorder.turns[1].observations[0].content

    # -- limits

    @pytest.mark.usefixtures("acting")
    async def test_no_more_than_max_steps_commands_are_run(self, attempts: AgentAttempts) -> None:
        attempt = attempts(*["echo x >> file"] * MANY, max_steps=3)
        assert (await attempt.run()).reason == "max_steps"
        assert len(attempt.lines("file")) == 3
        _assert_paired(attempt.recorder.turns)

    @pytest.mark.usefixtures("acting")
    async def test_no_more_than_max_turns_turns_are_taken(self, attempts: AgentAttempts) -> None:
        attempt = attempts(*["echo x >> file"] * MANY, max_turns=3)
        assert (await attempt.run()).reason == "max_turns"
        assert len(attempt.recorder.turns) == 3
        assert len(attempt.llm.requests) <= 3

    @pytest.mark.usefixtures("acting")
    async def test_a_tool_that_takes_too_long_is_ended_and_the_next_one_works(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("sleep 30", "echo on > file", tool_timeout_s=3.0)
        assert (await attempt.run()).reason == "finished"
        slow = attempt.recorder.turns[0].observations[0]
        assert slow.timed_out
        assert slow.error is not None
        assert attempt.lines("file") == ["on"]

    @pytest.mark.usefixtures("acting")
    async def test_the_time_limit_holds_while_a_tool_works(self, attempts: AgentAttempts) -> None:
        attempt = attempts("echo on > file", "sleep 60", time_limit_s=3.0, tool_timeout_s=60.0)
        assert (await attempt.run()).reason == "time_limit"
        assert attempt.lines("file") == ["on"]
        _assert_paired(attempt.recorder.turns)

    @pytest.mark.usefixtures("asking")
    async def test_the_time_limit_holds_while_the_model_works(
        self, attempts: AgentAttempts
    ) -> None:
        for limit in (0.5, 3.0, 12.0):  # a busy machine may not end the first turn in time
            attempt = attempts("echo on > file", then=[], time_limit_s=limit)
            assert (await attempt.run()).reason == "time_limit"
            if attempt.recorder.turns:
                break
        assert len(attempt.recorder.turns) == 1

    # -- what goes wrong around the agent

    @pytest.mark.usefixtures("asking")
    async def test_a_model_that_fails_breaks_the_episode_and_keeps_the_record(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one", then=[LLMError("no answer")])
        with pytest.raises(LLMError, match="no answer"):
            await attempt.run()
        assert len(attempt.recorder.turns) == 1
        assert await attempt.sandbox.end_processes() == 0

    @pytest.mark.usefixtures("acting")
    async def test_a_sandbox_that_is_gone_breaks_the_episode(self, attempts: AgentAttempts) -> None:
        attempt = attempts("echo one")
        await attempt.sandbox.close()
        with pytest.raises(SandboxError):
            await attempt.run()

    @pytest.mark.usefixtures("acting")
    async def test_cancelling_it_keeps_the_record_and_leaves_no_process(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one", "echo on > file; sleep 60", tool_timeout_s=None)
        running = asyncio.create_task(attempt.run())
        await attempt.grows("file")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(attempt.recorder.turns) >= 1
        _assert_paired(attempt.recorder.turns)
        assert await attempt.sandbox.end_processes() == 0

    @pytest.mark.usefixtures("asking")
    async def test_cancelling_it_while_the_model_works_keeps_the_record(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo on > file", then=[], time_limit_s=None)
        running = asyncio.create_task(attempt.run())
        await attempt.hangs()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(attempt.recorder.turns) == 1
        assert await attempt.sandbox.end_processes() == 0

    @pytest.mark.usefixtures("acting")
    @pytest.mark.parametrize("limits", [{}, {"max_steps": 1}, {"max_turns": 1}])
    async def test_no_shell_is_left_open_however_it_ends(
        self, attempts: AgentAttempts, limits: dict[str, Any]
    ) -> None:
        attempt = attempts("echo one", "echo two", **limits)
        await attempt.run()
        assert await attempt.sandbox.end_processes() == 0

    @pytest.mark.usefixtures("acting")
    async def test_a_server_that_the_task_asks_for_is_left_running(
        self, attempts: AgentAttempts
    ) -> None:
        server = "while sleep 0.02; do echo x >> file; done &"
        attempt = attempts(server, keep_processes=True)
        await attempt.run()
        so_far = len(attempt.lines("file"))
        await attempt.grows("file", so_far)


def _assert_paired(turns: Sequence[Turn]) -> None:
    """One observation for each call; calls in the text are answered by the user."""
    for turn in turns:
        calls = turn.completion.message.tool_calls
        if calls:
            assert [o.call_id for o in turn.observations] == [call.id for call in calls]
        else:
            assert {o.role for o in turn.observations} <= {"user"}
