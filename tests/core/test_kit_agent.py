"""The kit for agents passes a right one and fails wrong ones, each for its own reason."""

import asyncio
import json
import os
import select

import pytest
from attrs import evolve

from ale.errors import AleError
from ale.protocols import Agent, AgentContext, Recorder, Session
from ale.testing.agent import AgentAttempts, AgentContract, call
from ale.testing.fakes import FolderSandbox, ListRecorder
from ale.types import (
    CompletionRequest,
    Limits,
    Message,
    Observation,
    Stop,
    ToolCall,
    Trajectory,
    Turn,
    replace,
)


class PlainAgent:
    """One shell, one call a turn, nothing else; right as far as the contract goes."""

    limits = Limits(max_steps=100, max_turns=100, tool_timeout_s=60, time_limit_s=60)

    async def run(self, context: AgentContext) -> Stop:
        try:
            async with asyncio.timeout(context.limits.time_limit_s):
                return await self.work(context)
        except TimeoutError:
            return Stop(reason="time_limit")

    async def work(self, context: AgentContext) -> Stop:
        session = None
        try:
            while (stop := self.limit_reached(context)) is None:
                turn = await self.ask(context)
                (made,) = turn.completion.message.tool_calls
                if made.name == "finish":
                    self.record(context, turn, self.observe(made, "bye"))
                    return Stop(reason="finished")
                if session is None or session.closed:
                    session = await context.sandbox.session()
                await self.act(context, session, turn, made)
            return stop
        finally:
            if session is not None:
                await self.close(session, context)

    def limit_reached(self, context: AgentContext) -> Stop | None:
        n = len(context.recorder.turns)
        if n >= context.limits.max_steps:
            return Stop(reason="max_steps")
        return Stop(reason="max_turns") if n >= context.limits.max_turns else None

    async def ask(self, context: AgentContext) -> Turn:
        turns = tuple(context.recorder.turns)
        goal = Message(role="user", content=context.task.goal)
        request = CompletionRequest(
            messages=self.messages(goal, turns),
            conversation=context.conversation,
            turn=len(turns),
            fresh_context=not turns,
        )
        completion = await context.llm.complete(request)
        prompt = () if turns else (goal,)
        return Turn(prompt=prompt, fresh_context=not turns, completion=completion)

    def messages(self, goal: Message, turns: tuple[Turn, ...]) -> tuple[Message, ...]:
        return Trajectory(turns=turns).messages() if turns else (goal,)

    async def act(
        self, context: AgentContext, session: Session, turn: Turn, made: ToolCall
    ) -> None:
        command = json.loads(made.arguments)["command"]
        observation = self.observe(made, "cancelled", error="cancelled")
        try:
            result = await session.run(command, timeout_s=context.limits.tool_timeout_s)
            observation = self.observe(
                made,
                result.stdout.decode(),
                error=f"exit code {result.exit_code}" if result.exit_code else None,
                timed_out=result.timed_out,
            )
        finally:
            self.record(context, turn, observation)

    def observe(self, made: ToolCall, content: str, **fields: object) -> Observation:
        return Observation(call_id=made.id, tool=made.name, content=content, **fields)

    def record(self, context: AgentContext, turn: Turn, observation: Observation) -> None:
        context.recorder.append(replace(turn, observations=(observation,)))

    async def close(self, session: Session, context: AgentContext) -> None:
        if not context.task.keep_processes:
            await session.close()


class TestAPlainAgent(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return PlainAgent()


class NeverFinishes(PlainAgent):
    async def work(self, context: AgentContext) -> Stop:
        await super().work(context)
        return Stop(reason="gave_up")


class ShowsNothing(PlainAgent):
    def observe(self, made: ToolCall, content: str, **fields: object) -> Observation:
        return super().observe(made, "", **fields)


class HidesErrors(PlainAgent):
    def observe(self, made: ToolCall, content: str, **fields: object) -> Observation:
        return super().observe(made, content)


class LosesObservations(PlainAgent):
    def record(self, context: AgentContext, turn: Turn, observation: Observation) -> None:
        context.recorder.append(turn)


class AnswersTheWrongCall(PlainAgent):
    def observe(self, made: ToolCall, content: str, **fields: object) -> Observation:
        return super().observe(replace(made, id="other"), content, **fields)


class CallsNothingFresh(PlainAgent):
    def record(self, context: AgentContext, turn: Turn, observation: Observation) -> None:
        super().record(context, replace(turn, fresh_context=False), observation)


class RecordsTwice(PlainAgent):
    def record(self, context: AgentContext, turn: Turn, observation: Observation) -> None:
        super().record(context, turn, observation)
        super().record(context, turn, observation)


class AsksMoreThanItRecords(PlainAgent):
    def messages(self, goal: Message, turns: tuple[Turn, ...]) -> tuple[Message, ...]:
        return (Message(role="system", content="Hush."), *super().messages(goal, turns))


class IsAlwaysTheSameEpisode(PlainAgent):
    async def run(self, context: AgentContext) -> Stop:
        conversation = replace(context.conversation, episode_id="mine")
        return await super().run(evolve(context, conversation=conversation))


class SharesItsRecord(PlainAgent):
    first: Recorder | None = None

    async def run(self, context: AgentContext) -> Stop:
        self.first = self.first or context.recorder
        return await super().run(evolve(context, recorder=self.first))


class HeedsNo(PlainAgent):
    """Knows nothing of one limit."""

    def __init__(self, limit: str) -> None:
        self.ignored = {limit: 1000}

    async def run(self, context: AgentContext) -> Stop:
        return await super().run(evolve(context, limits=replace(context.limits, **self.ignored)))


class SwallowsErrors(PlainAgent):
    async def work(self, context: AgentContext) -> Stop:
        try:
            return await super().work(context)
        except AleError:
            return Stop(reason="agent_error")


class SwallowsCancellation(PlainAgent):
    async def run(self, context: AgentContext) -> Stop:
        try:
            return await super().work(context)
        except asyncio.CancelledError:
            return Stop(reason="gave_up")


class RecordsAtTheEnd(PlainAgent):
    """Its turns are lost when it is cut off."""

    async def run(self, context: AgentContext) -> Stop:
        kept = ListRecorder()
        stop = await super().run(evolve(context, recorder=kept))
        for turn in kept.turns:
            context.recorder.append(turn)
        return stop


class LeavesItsShell(PlainAgent):
    async def close(self, session: Session, context: AgentContext) -> None:
        pass


class EndsEveryShell(PlainAgent):
    async def close(self, session: Session, context: AgentContext) -> None:
        await session.close()


WRONG = [
    (NeverFinishes(), "an_episode_without_limits_ends_as_finished"),
    (ShowsNothing(), "commands_are_run_in_order_and_their_output_is_observed"),
    (HidesErrors(), "a_failing_command_is_an_error_and_not_the_end"),
    (LosesObservations(), "calls_and_observations_are_one_to_one"),
    (AnswersTheWrongCall(), "calls_and_observations_are_one_to_one"),
    (CallsNothingFresh(), "the_context_starts_anew_in_the_first_turn"),
    (RecordsTwice(), "a_turn_is_recorded_before_the_model_is_asked_again"),
    (RecordsAtTheEnd(), "a_turn_is_recorded_before_the_model_is_asked_again"),
    (AsksMoreThanItRecords(), "the_record_gives_back_what_the_model_was_asked"),
    (CallsNothingFresh(), "the_record_gives_back_what_the_model_was_asked"),
    (IsAlwaysTheSameEpisode(), "requests_say_which_episode_and_which_turn_they_are_of"),
    (SharesItsRecord(), "two_episodes_at_once_are_kept_apart"),
    (HeedsNo("max_steps"), "no_more_than_max_steps_commands_are_run"),
    (HeedsNo("max_turns"), "no_more_than_max_turns_turns_are_taken"),
    (HidesErrors(), "a_tool_that_takes_too_long_is_ended_and_the_next_one_works"),
    (SwallowsErrors(), "a_model_that_fails_breaks_the_episode_and_keeps_the_record"),
    (RecordsAtTheEnd(), "a_model_that_fails_breaks_the_episode_and_keeps_the_record"),
    (SwallowsErrors(), "a_sandbox_that_is_gone_breaks_the_episode"),
    (SwallowsCancellation(), "cancelling_it_keeps_the_record_and_leaves_no_process"),
    (RecordsAtTheEnd(), "cancelling_it_keeps_the_record_and_leaves_no_process"),
    (LeavesItsShell(), "cancelling_it_keeps_the_record_and_leaves_no_process"),
    (SwallowsCancellation(), "cancelling_it_while_the_model_works_keeps_the_record"),
    (RecordsAtTheEnd(), "cancelling_it_while_the_model_works_keeps_the_record"),
    (LeavesItsShell(), "cancelling_it_while_the_model_works_keeps_the_record"),
]
ENDLESS = [
    (HeedsNo("tool_timeout_s"), "a_tool_that_takes_too_long_is_ended_and_the_next_one_works"),
    (HeedsNo("time_limit_s"), "the_time_limit_holds_while_a_tool_works"),
    (HeedsNo("time_limit_s"), "the_time_limit_holds_while_the_model_works"),
    (EndsEveryShell(), "a_server_that_the_task_asks_for_is_left_running"),
]
"""Wrong agents that the kit has to give up on."""


async def assert_fails(agent: Agent, promise: str, **arguments: object) -> None:
    attempts = AgentAttempts(agent, ending=call("finish", summary="done"))
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            await getattr(AgentContract(), f"test_{promise}")(attempts, **arguments)
    finally:
        await attempts.close()


def named(cases: list[tuple[PlainAgent, str]]) -> pytest.MarkDecorator:
    params = [pytest.param(a, p, id=f"{type(a).__name__}-{p}") for a, p in cases]
    return pytest.mark.parametrize(("agent", "promise"), params)


@named(WRONG)
async def test_the_kit_fails_an_agent_that_breaks_a_promise(agent: Agent, promise: str) -> None:
    await assert_fails(agent, promise)


@named(ENDLESS)
async def test_the_kit_gives_up_on_an_agent_that_waits_for_ever(
    agent: Agent, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale.testing.agent.PATIENCE_S", 1.0)
    await assert_fails(agent, promise)


@pytest.mark.parametrize("limits", [{}, {"max_steps": 1}, {"max_turns": 1}])
async def test_the_kit_fails_an_agent_that_leaves_its_shell_open(limits: dict[str, int]) -> None:
    await assert_fails(LeavesItsShell(), "no_shell_is_left_open_however_it_ends", limits=limits)


def test_every_promise_of_the_kit_has_a_wrong_agent_here() -> None:
    promises = {name.removeprefix("test_") for name in dir(AgentContract) if "test_" in name}
    tried = {promise for _, promise in WRONG + ENDLESS} | {"no_shell_is_left_open_however_it_ends"}
    assert promises == tried


async def test_a_folder_sandbox_ends_what_a_command_has_left_behind() -> None:
    sandbox = FolderSandbox()
    await sandbox.exec("sleep 600 >/dev/null 2>&1 & echo $! >pid")
    left = os.pidfd_open(int(await sandbox.read("pid")))
    try:
        await sandbox.close()
        assert select.select([left], [], [], 0) == ([left], [], [])
    finally:
        os.close(left)
