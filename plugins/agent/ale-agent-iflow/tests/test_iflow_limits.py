"""Each of the five limits bites, by the options and by what the run has tightened."""

import itertools

import pytest

from ale.plugin import BuildContext
from ale.testing.agent import answer, call, shell_call
from ale.testing.fakes import ManualClock
from ale.types import Limits
from ale_agent_iflow.loop import IflowAgent
from ale_agent_iflow.options import IflowOptions

FINISH = call("finish", summary="done")
COUNT = shell_call("echo x >> count")


def count(played) -> int:
    return len((played.folder / "count").read_text().splitlines())


def test_the_defaults_are_these():
    agent = IflowAgent(IflowOptions(), BuildContext())
    assert agent.limits == Limits(
        max_steps=40,
        max_turns=80,
        tool_timeout_s=60.0,
        time_limit_s=600.0,
        context_max_tokens=8000,
    )


async def test_max_steps_counts_tool_calls(play):
    played = await play(*itertools.repeat(COUNT, 9), max_steps=4)
    assert (played.stop.reason, played.stop.detail) == ("max_steps", "4 of 4 tool calls used")
    assert count(played) == 4
    assert len(played.llm.requests) == 4


async def test_max_steps_ends_in_the_middle_of_an_answer(play):
    three = answer("", *[("shell", '{"command": "echo x >> count"}')] * 3)
    played = await play(three, three, max_steps=4)
    assert played.stop.reason == "max_steps"
    assert count(played) == 4
    assert [o.error for o in played.turns[1].observations] == [
        None,
        "not run: max_steps",
        "not run: max_steps",
    ]


async def test_a_call_that_can_not_be_run_counts_as_a_step(play):
    played = await play(*itertools.repeat(call("nothing"), 9), max_steps=2)
    assert played.stop.reason == "max_steps"
    assert len(played.observations) == 2


async def test_finish_may_be_the_last_step(play):
    played = await play(COUNT, FINISH, max_steps=2)
    assert played.stop.reason == "finished"


async def test_max_turns_counts_answers_with_and_without_calls(play):
    played = await play(COUNT, answer(""), COUNT, COUNT, max_turns=3)
    assert (played.stop.reason, played.stop.detail) == ("max_turns", "3 of 3 completions used")
    assert count(played) == 2


async def test_all_calls_of_the_last_turn_are_run(play):
    two = answer("", *[("shell", '{"command": "echo x >> count"}')] * 2)
    played = await play(two, max_turns=1)
    assert played.stop.reason == "max_turns"
    assert count(played) == 2


async def test_tool_timeout_ends_the_tool_and_not_the_episode(play):
    played = await play(shell_call("sleep 30"), COUNT, FINISH, tool_timeout_s=3.0)
    assert played.stop.reason == "finished"
    assert [o.timed_out for o in played.observations] == [True, False, False]
    assert count(played) == 1


async def test_the_time_limit_cuts_a_tool_short(play):
    played = await play(COUNT, shell_call("sleep 30"), COUNT, time_limit_s=3.0)
    assert (played.stop.reason, played.stop.detail) == ("time_limit", "3 s are over")
    assert played.observations[-1].timed_out
    assert count(played) == 1


async def test_the_time_limit_is_by_the_clock_of_the_run(play):
    clock = ManualClock(tick=100.0)
    played = await play(
        *itertools.repeat(COUNT, 9), time_limit_s=2000.0, context=BuildContext(monotonic=clock)
    )
    assert played.stop.reason == "time_limit"
    assert 1 <= len(played.turns) < 9


async def test_calls_left_when_time_is_over_are_not_run(play):
    late = answer(
        "", ("shell", '{"command": "sleep 30"}'), ("shell", '{"command": "echo x >> count"}')
    )
    played = await play(late, time_limit_s=0.3)
    assert [o.error for o in played.observations][1] == "not run: time_limit"
    assert not (played.folder / "count").exists()


async def test_a_context_that_can_not_be_compacted_ends_the_episode(play):
    played = await play(COUNT, context_max_tokens=256)
    assert played.stop.reason == "context"
    assert played.stop.detail == "more than 256 tokens, and compaction can't shorten it enough"
    assert played.llm.requests == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_steps": 1}, "max_steps"),
        ({"max_turns": 1}, "max_turns"),
        ({"time_limit_s": 0.0}, "time_limit"),
        ({"context_max_tokens": 1}, "context"),
    ],
)
async def test_stricter_limits_of_the_run_apply(play, limits, reason):
    played = await play(*itertools.repeat(COUNT, 9), limits=limits)
    assert played.stop.reason == reason


async def test_without_limits_the_model_decides(play):
    none = dict.fromkeys(
        ["max_steps", "max_turns", "tool_timeout_s", "time_limit_s", "context_max_tokens"]
    )
    played = await play(*itertools.repeat(COUNT, 45), FINISH, **none)
    assert played.stop.reason == "finished"
    assert count(played) == 45
