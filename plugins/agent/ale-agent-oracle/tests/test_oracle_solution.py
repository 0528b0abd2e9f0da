"""What the oracle does with a solution, and what its record looks like."""

import json

import msgspec
import pytest

from ale.errors import AleError
from ale.plugin import BuildContext
from ale.testing import builders
from ale.testing.fakes import FolderSandbox, ManualClock
from ale.testing.played import play
from ale.types import Limits, Trajectory, replace
from ale_agent_oracle.options import OracleOptions
from ale_agent_oracle.plugin import ale_agents

ORACLE, NOOP, ECHO, _ = ale_agents()


@pytest.fixture
async def sandbox():
    sandbox = FolderSandbox()
    yield sandbox
    await sandbox.close()


@pytest.fixture
def run(sandbox):
    async def run(*solution, options=None, clock=None, component=ORACLE, task=None, **limits):
        context = BuildContext() if clock is None else BuildContext(monotonic=clock)
        agent = component.build(options or OracleOptions(), context)
        task = task or builders.task(goal="Write f.", solution=solution)
        played = await play(agent, sandbox, [], task=task, limits=limits)
        return played.stop, played.turns

    return run


async def test_each_command_is_a_turn_that_looks_like_a_models(run):
    stop, turns = await run("cd /; X=7", "echo $X; pwd")
    assert (stop.reason, stop.detail) == ("finished", "ran 2 commands of the solution")
    (made,) = turns[1].completion.message.tool_calls
    assert (made.name, json.loads(made.arguments)) == ("shell", {"command": "echo $X; pwd"})
    assert turns[1].completion.model == "oracle"
    assert turns[1].observations[0].content == "7\n/\n[exit code 0]"
    assert turns[1].observations[0].call_id == made.id
    roles = [m.role for m in Trajectory(turns=tuple(turns)).messages()]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


async def test_one_command_is_said_in_the_singular(run):
    stop, _ = await run("true")
    assert stop.detail == "ran 1 command of the solution"


async def test_a_command_that_fails_is_recorded_and_the_next_one_runs(run):
    stop, turns = await run("echo no >&2; false", "echo on")
    assert stop.reason == "finished"
    assert [t.observations[0].error for t in turns] == ["exit code 1", None]
    assert turns[0].observations[0].content == "no\n[exit code 1]"


async def test_a_command_that_ends_the_shell_costs_only_the_shell(run):
    stop, turns = await run("X=7; exit 3", "echo X=$X")
    assert stop.reason == "finished"
    assert [t.observations[0].exit_code for t in turns] == [3, 0]
    assert turns[1].observations[0].content == "X=\n[exit code 0]"


async def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs(run):
    stop, turns = await run("sleep 30", "echo on", options=OracleOptions(tool_timeout_s=3.0))
    assert stop.reason == "finished"
    assert turns[0].observations[0].error == "timed out after 3 s"
    assert turns[1].observations[0].content == "on\n[exit code 0]"


async def test_a_last_command_that_is_cut_off_by_the_time_limit_is_not_finished(run):
    stop, turns = await run("sleep 30", time_limit_s=0.2)
    assert stop.reason == "time_limit"
    assert turns[0].observations[0].timed_out


async def test_a_task_without_a_solution_breaks_its_episode(run):
    with pytest.raises(AleError, match="nothing to run: the task has no reference solution"):
        await run(task=builders.task())


async def test_the_tasks_reason_for_a_missing_solution_is_reported(run):
    with pytest.raises(AleError, match="nothing to run: it is too large"):
        await run(task=builders.task(metadata={"no_solution": "it is too large"}))


async def test_the_solution_folder_is_created_in_sandboxes_with_their_own_files(
    run, sandbox, monkeypatch
):
    made = []

    async def upload(source, target):
        made.append((list(source.iterdir()), source.stat().st_mode & 0o777, target))
        raise PermissionError("not here")  # then it runs all the same

    monkeypatch.setattr(sandbox, "upload", upload)
    task = builders.task(solution=("true",), metadata={"solution_folder": "/solution"})
    stop, _ = await run(task=task)
    assert (stop.reason, made) == ("finished", [])
    isolated = replace(sandbox.capabilities, filesystem_isolation=True)
    monkeypatch.setattr(sandbox, "capabilities", isolated)
    stop, turns = await run(task=task)
    assert (stop.reason, len(turns)) == ("finished", 1)
    assert made == [([], 0o755, "/solution")]


async def test_an_empty_solution_is_finished(run):
    stop, turns = await run(task=builders.task(solution=()))
    assert (stop.reason, turns) == ("finished", [])


async def test_output_is_recorded_up_to_the_limit(run, monkeypatch):
    monkeypatch.setattr("ale_agent_oracle.oracle.MAX_OUTPUT_BYTES", 100)
    _, turns = await run("seq 10000")
    assert turns[0].observations[0].truncated
    assert len(turns[0].observations[0].content) < 150


async def test_bytes_that_are_not_utf_8_are_recorded_as_escapes(run):
    _, turns = await run(r"printf 'a\xff'")
    assert turns[0].observations[0].content == "a\\xff\n[exit code 0]"


async def test_two_runs_with_the_same_clock_are_the_same_to_the_byte(run):
    first, second = [
        msgspec.json.encode(await run("echo a", "false", clock=ManualClock(tick=0.5)))
        for _ in range(2)
    ]
    assert first == second
    assert b'"duration_s":0.5' in first


async def test_noop_touches_nothing(run, sandbox):
    stop, turns = await run("echo on > f", component=NOOP)
    assert (stop.reason, turns) == ("finished", [])
    assert (await sandbox.exec("ls -A")).stdout == b""


def test_the_limits_are_those_of_the_options():
    options = OracleOptions(tool_timeout_s=5.0, time_limit_s=None)
    assert ORACLE.build(options, BuildContext()).limits == Limits(tool_timeout_s=5.0)
    assert NOOP.build(None, BuildContext()).limits == Limits()


async def test_echo_says_the_goal_and_that_it_is_a_dry_run(run):
    stop, (turn,) = await run(component=ECHO)
    assert turn.completion.message.content == turn.prompt[0].content == "Write f."
    assert (turn.completion.model, turn.completion.tokens) == ("echo", None)
    assert stop.detail.startswith("dry run")
