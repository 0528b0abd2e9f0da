"""The loop for agents, held by the contract kit of agents."""

import json
from typing import Any

import pytest

from ale.agents import EpisodeLoop, shell_observation
from ale.errors import ContextLengthError, LLMError
from ale.protocols import Agent, AgentContext
from ale.testing import builders
from ale.testing.agent import AgentAttempts, AgentContract, answer, call, shell_call
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder
from ale.types import Limits, Observation, Stop, ToolCall, ToolSpec

SHELL = ToolSpec(
    name="shell",
    description="Run a command.",
    parameters={
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
)


class ShellEpisode(EpisodeLoop):
    tools = (SHELL,)

    async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
        command = self.arguments(call)["command"]
        return shell_observation(call, await self.shell.run(command, timeout_s), timeout_s)


class ShellAgent:
    limits = Limits()

    async def run(self, context: AgentContext) -> Stop:
        return await ShellEpisode(context).run()


class TestLoop(AgentContract):
    @pytest.fixture
    def agent(self) -> Agent:
        return ShellAgent()

    @pytest.fixture
    def ending(self) -> Any:
        return answer("Done.")

    @pytest.mark.parametrize(
        ("tool", "arguments", "error"),
        [
            ("browse", "{}", "there is no tool browse, only shell"),
            ("shell", "{}", "missing argument: command"),
            ("shell", "[]", "the arguments are not a JSON object"),
            ("shell", "{", "the arguments are not JSON: Expecting property name"),
            pytest.param("shell", "[" * 100_000, "the arguments are nested too deeply", id="deep"),
            ("shell", '{"command": ["ls"]}', "command must be text"),
            ("shell", '{"command": null}', "command must be text"),
        ],
    )
    async def test_a_mistake_in_a_call_is_shown_to_the_model(
        self, attempts: AgentAttempts, tool: str, arguments: str, error: str
    ) -> None:
        attempt = attempts(then=[answer("", (tool, arguments)), answer("Done.")])
        assert (await attempt.run()).reason == "finished"
        assert error in attempt.llm.requests[1].messages[-1].content

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"command": True}},
            {"properties": {"command": None}},
            {"properties": None, "required": None},
            {"properties": {"command": {"type": ["string", "null"]}}},
            {"properties": {"command": {"anyOf": [{"type": "string"}]}}, "required": None},
            {"properties": {"command": {"type": "array", "nullable": True}, "extra": False}},
            {},
        ],
    )
    @pytest.mark.parametrize("arguments", ['{"command": "echo x"}', '{"command": null}'])
    async def test_what_a_schema_does_not_say_is_not_checked(
        self, schema: dict[str, Any], arguments: str
    ) -> None:
        class Given(ShellEpisode):
            tools = (ToolSpec(name="shell", description="Run.", parameters=schema),)

            async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
                return Observation(
                    call_id=call.id, tool=call.name, content=repr(self.arguments(call))
                )

        class GivenAgent(ShellAgent):
            async def run(self, context: AgentContext) -> Stop:
                return await Given(context).run()

        attempts = AgentAttempts(GivenAgent())
        attempt = attempts(then=[answer("", ("shell", arguments)), answer("Done.")])
        assert (await attempt.run()).reason == "finished"
        await attempts.close()
        shown = attempt.llm.requests[1].messages[-1].content
        if "array" in str(schema) and "echo" in arguments:
            assert "must be a list" in shown
        else:
            assert shown == repr(json.loads(arguments))

    async def test_calls_after_the_last_step_are_recorded_as_not_run(
        self, attempts: AgentAttempts
    ) -> None:
        both = answer("", *[("shell", '{"command": "echo x >> file"}')] * 2)
        attempt = attempts(then=[both], max_steps=1)
        assert (await attempt.run()).reason == "max_steps"
        assert attempt.lines("file") == ["x"]
        assert attempt.recorder.turns[0].observations[1].error == "not run: max_steps"

    async def test_a_conversation_too_long_ends_the_episode_and_is_no_failure(
        self, attempts: AgentAttempts
    ) -> None:
        attempt = attempts("echo one", then=[ContextLengthError("4096 tokens")])
        assert await attempt.run() == Stop(reason="context", detail="4096 tokens")
        assert len(attempt.recorder.turns) == 1

    async def test_it_stops_at_the_limit_of_the_context(self, attempts: AgentAttempts) -> None:
        long = answer("", ("shell", '{"command": "true"}'), usage=(90, 10))
        attempt = attempts(then=[long, answer("Done.")], context_max_tokens=100)
        assert (await attempt.run()).reason == "context"

    async def test_the_tools_are_recorded_once(self, attempts: AgentAttempts) -> None:
        attempt = attempts("echo one", "echo two")
        await attempt.run()
        assert [turn.tools for turn in attempt.recorder.turns] == [(SHELL,), (), ()]


async def test_stop_ends_the_episode_after_the_calls_of_the_turn() -> None:
    class Finishing(ShellEpisode):
        async def call(self, call: ToolCall, timeout_s: float | None) -> Observation:
            self.stop = Stop(reason="finished", detail="by a tool")
            return Observation(call_id=call.id, tool=call.name, content="")

    context = AgentContext(
        task=builders.task(),
        sandbox=FolderSandbox(),
        llm=FakeLLM([call("finish")]),
        limits=Limits(),
        conversation=builders.conversation(),
        recorder=ListRecorder(),
    )
    assert (await Finishing(context).run()).detail == "by a tool"
    await context.sandbox.close()


async def test_a_model_without_tools_is_an_error() -> None:
    context = AgentContext(
        task=builders.task(),
        sandbox=FolderSandbox(),
        llm=FakeLLM([shell_call("true")], tools=False),
        limits=Limits(),
        conversation=builders.conversation(),
        recorder=ListRecorder(),
    )
    with pytest.raises(LLMError, match="can call tools"):
        await ShellEpisode(context).run()
    await context.sandbox.close()
