"""Whole episodes: the record, the folding in it, silence, failures, cancellation, options."""

import asyncio
import json
import random
from pathlib import Path

import msgspec
import pytest

from ale.errors import ContextLengthError, InputError, LLMError, SandboxError
from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.testing import builders
from ale.testing.agent import answer, call, shell_call
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder, ManualClock
from ale_agent_iflow.plugin import IflowOptions, ale_agents

FINISH = call("finish", summary="done")


def output(n_bytes: int) -> str:
    return f"head -c {n_bytes} /dev/zero | tr '\\0' x"


# -- the record


def random_answers(rng: random.Random, *, native: bool) -> list[object]:
    answers: list[object] = []
    for i in range(rng.randrange(3, 14)):
        n_calls = rng.choice([0, 1, 1, 1, 2, 3] if native else [0, 1, 1, 1])
        calls = [
            rng.choice(
                [
                    ("shell", json.dumps({"command": output(rng.choice([0, 50, 900, 2500]))})),
                    ("write_file", json.dumps({"path": "f", "content": "y" * rng.randrange(900)})),
                    ("read_file", json.dumps({"path": rng.choice(["f", "none"])})),
                    ("sheel", "{}"),
                    ("shell", "{broken"),
                ]
            )
            for _ in range(n_calls)
        ]
        usage = rng.choice([(0, 0), (rng.randrange(300, 900), rng.randrange(100))])
        text = f"answer {i}"
        if not native and calls:
            ((name, arguments),) = calls
            text += f'\n```tool\n{{"name": "{name}", "arguments": {arguments}}}\n```'
        if i > 0 and rng.random() < 0.1:
            answers.append(ContextLengthError("too long"))
        answers.append(answer(text, *(calls if native else []), usage=usage))
    if native:
        return [*answers, FINISH]
    return [*answers, answer('```tool\n{"name": "finish", "arguments": {"summary": ""}}\n```')]


@pytest.mark.parametrize("seed", range(60))
async def test_the_record_gives_back_every_request_of_any_episode(play, seed):
    rng = random.Random(seed)
    native = seed % 2 == 0
    played = await play(
        *random_answers(rng, native=native),
        tools=native,
        context_max_tokens=rng.choice([1000, 1600, 4000, None]),
        max_nudges=5,
    )
    assert len(played.turns) > 1
    answered = {request.turn: request for request in played.llm.requests}
    for i, turn in enumerate(played.turns):
        assert played.trajectory.messages(i) == answered[i].messages
        assert turn.fresh_context == answered[i].fresh_context
        calls = turn.completion.message.tool_calls
        assert not native or [o.call_id for o in turn.observations] == [c.id for c in calls]


async def test_random_episodes_do_fold(play):
    rng = random.Random(0)
    n_fresh = 0
    for _ in range(10):
        played = await play(*random_answers(rng, native=True), context_max_tokens=1500)
        n_fresh += sum(turn.fresh_context for turn in played.turns[1:])
    assert n_fresh > 5


async def test_each_message_is_stored_once(play):
    played = await play(shell_call("echo a"), answer("Hm."), shell_call("echo b"), FINISH)
    assert [len(turn.prompt) for turn in played.turns] == [2, 0, 1, 0]
    assert played.turns[2].prompt[0].role == "user"


async def test_two_runs_with_the_same_clocks_are_the_same_to_the_byte(play):
    answers = [shell_call("echo a"), call("read_file", path="none"), answer("Hm."), FINISH]

    async def bytes_of_a_run() -> bytes:
        clock = ManualClock(tick=0.25)
        played = await play(*answers, context=BuildContext(monotonic=clock))
        return msgspec.json.encode((list(played.turns), played.stop))

    first = await bytes_of_a_run()
    assert b'"duration_s":0.5' in first
    assert first == await bytes_of_a_run()


# -- folding


async def test_a_conversation_that_grows_too_long_is_folded_and_goes_on(play):
    played = await play(
        *[shell_call(output(1500))] * 8, FINISH, context_max_tokens=1600, max_output_bytes=2048
    )
    assert played.stop.reason == "finished"
    fresh = [i for i, turn in enumerate(played.turns) if turn.fresh_context]
    assert fresh[0] == 0
    assert len(fresh) > 1
    folded = played.llm.requests[fresh[1]]
    assert folded.fresh_context
    system, task = played.llm.requests[0].messages
    assert folded.messages[0] == system
    assert folded.messages[1].content.startswith(f"{task.content}\n\n[Earlier steps are left out")
    assert "- shell head -c 1500 /dev/zero | tr" in folded.messages[1].content


async def test_the_providers_count_triggers_folding(play):
    full = answer("", ("shell", '{"command": "echo a"}'), usage=(7990, 20))
    played = await play(shell_call(output(500)), shell_call("echo b"), full, FINISH)
    assert [turn.fresh_context for turn in played.turns] == [True, False, False, True]


async def test_a_provider_that_finds_it_too_long_gets_a_shorter_one(play):
    played = await play(*[shell_call(output(2000))] * 3, ContextLengthError("too long"), FINISH)
    refused, accepted = played.llm.requests[3:]
    assert played.stop.reason == "finished"
    assert refused.turn == accepted.turn == 3
    assert accepted.fresh_context
    n_refused, n_accepted = (sum(len(m.content) for m in r.messages) for r in (refused, accepted))
    assert n_accepted < n_refused / 2 + 500


async def test_what_can_hardly_be_shortened_is_shortened_all_the_same(play):
    played = await play(shell_call(output(100)), ContextLengthError("too long"), FINISH)
    assert played.stop.reason == "finished"
    assert len(played.llm.requests[2].messages) == 2


async def test_a_provider_that_goes_on_refusing_ends_the_episode(play):
    played = await play(*[shell_call(output(4000))] * 4, *[ContextLengthError("no room")] * 3)
    assert (played.stop.reason, len(played.turns)) == ("context", 4)
    assert "no room" in played.stop.detail


async def test_a_provider_that_refuses_the_task_itself_ends_the_episode(play):
    played = await play(ContextLengthError("8 tokens at most"))
    assert played.stop.reason == "context"
    assert played.stop.detail == ("8 tokens at most, and folding the conversation can't help")


# -- answers without a call


@pytest.mark.parametrize(
    ("silent", "said"),
    [
        (answer("I am done."), "Your answer held no tool call, so nothing was done. "),
        (answer(" \n"), "Your answer was empty. "),
        (answer("So", finish_reason="length"), "Your answer was cut off at the token limit "),
        (answer("", finish_reason="content_filter"), "Your answer was withheld by the provider"),
    ],
)
async def test_a_model_that_calls_nothing_is_told_what_was_wrong(play, silent, said):
    played = await play(silent, FINISH)
    assert played.said_to_model(1).startswith(said)
    assert played.said_to_model(1).endswith("Call a tool to go on, or finish if the task is done.")
    assert played.stop.reason == "finished"


async def test_after_two_hints_in_a_row_the_episode_is_given_up(play):
    played = await play(answer("Hm."), answer("Hm."), answer("Hm."))
    assert played.stop.reason == "gave_up"
    assert played.stop.detail == "3 answers in a row without a tool call"
    assert len(played.turns) == 3


async def test_a_call_in_between_starts_the_count_anew(play):
    hm = answer("Hm.")
    played = await play(hm, hm, shell_call("true"), hm, hm, FINISH)
    assert played.stop.reason == "finished"


async def test_no_hint_is_given_where_the_option_says_so(play):
    played = await play(answer("Hm."), max_nudges=0)
    assert played.stop.reason == "gave_up"


# -- what goes wrong


class GoneAfter(FolderSandbox):
    """Its sessions fail at the nth command."""

    n = 2

    async def session(self, *, env=None, cwd=None):
        session = await super().session(env=env, cwd=cwd)
        run = session.run

        async def failing(command, **options):
            self.n -= 1
            if self.n < 1:
                raise SandboxError("the container is gone")
            return await run(command, **options)

        session.run = failing
        return session


async def start(sandbox, *answers, task=None, **options):
    agent = ale_agents()[0].build(IflowOptions(**options), BuildContext())
    recorder = ListRecorder()
    context = AgentContext(
        task=task or builders.task(),
        sandbox=sandbox,
        llm=FakeLLM(answers),
        limits=agent.limits,
        conversation=builders.conversation(),
        recorder=recorder,
    )
    return asyncio.create_task(agent.run(context)), recorder


TWO = answer("", ("shell", '{"command": "echo one"}'), ("shell", '{"command": "echo two"}'))


async def test_a_sandbox_that_fails_in_the_middle_of_a_turn_leaves_the_turn_on_record():
    sandbox = GoneAfter()
    running, recorder = await start(sandbox, TWO)
    with pytest.raises(SandboxError, match="the container is gone"):
        await running
    (turn,) = recorder.turns
    assert [o.error for o in turn.observations] == [None, "SandboxError: the container is gone"]
    assert await sandbox.end_processes() == 0
    await sandbox.close()


async def test_cancelling_in_the_middle_of_a_turn_leaves_the_turn_on_record():
    sandbox = FolderSandbox()
    calls = [
        ("shell", json.dumps({"command": c})) for c in ("echo one", "touch f; sleep 60", "true")
    ]
    running, recorder = await start(sandbox, answer("", *calls))
    async with asyncio.timeout(10):
        while not (Path(sandbox.workdir) / "f").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (turn,) = recorder.turns
    assert [o.content for o in turn.observations] == [
        "one\n[exit code 0]",
        "[cancelled]",
        "[cancelled]",
    ]
    assert [o.error for o in turn.observations] == [None, "cancelled", "cancelled"]
    assert await sandbox.end_processes() == 0
    await sandbox.close()


async def test_a_timeout_error_of_the_model_component_is_not_taken_for_the_limit():
    sandbox = FolderSandbox()
    running, _ = await start(sandbox, TimeoutError("a bug"))
    with pytest.raises(TimeoutError, match="a bug"):
        await running
    await sandbox.close()


async def test_a_model_that_fails_breaks_the_episode():
    sandbox = FolderSandbox()
    running, recorder = await start(sandbox, TWO, LLMError("503"))
    with pytest.raises(LLMError, match="503"):
        await running
    assert len(recorder.turns) == 1
    await sandbox.close()


# -- the prompt


async def test_the_first_request_holds_the_folder_and_the_goal(play):
    played = await play(FINISH, task=builders.task(goal="Write a haiku."))
    system, goal = played.llm.requests[0].messages
    assert f"Working directory: {played.folder}." in system.content
    assert "finish" in system.content
    assert goal.content == "Write a haiku."


async def test_the_system_prompt_is_an_option(play, tmp_path):
    played = await play(FINISH, system_prompt="Work in {workdir}. Keep {braces}.")
    assert played.llm.requests[0].messages[0].content == (
        f"Work in {played.folder}. Keep {{braces}}."
    )
    (tmp_path / "prompt.txt").write_text("From a file.")
    played = await play(FINISH, system_prompt_file=tmp_path / "prompt.txt")
    assert played.llm.requests[0].messages[0].content == "From a file."


def test_a_prompt_that_can_not_be_had_is_a_problem_of_the_config(tmp_path):
    build = ale_agents()[0].build
    with pytest.raises(InputError, match="can't be read"):
        build(IflowOptions(system_prompt_file=tmp_path / "none"), BuildContext())
    with pytest.raises(InputError, match="not both"):
        build(IflowOptions(system_prompt="a", system_prompt_file=tmp_path), BuildContext())
