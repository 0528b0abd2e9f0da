"""Whole episodes: the record, the compaction in it, silence, failures, cancellation, options."""

import asyncio
import json
import random
from pathlib import Path

import msgspec
import pytest

from ale.errors import ContextLengthError, InputError, LLMError, SandboxError, ToolsUnsupportedError
from ale.plugin import BuildContext
from ale.protocols import AgentContext
from ale.testing import builders
from ale.testing.agent import answer, call, shell_call
from ale.testing.fakes import FakeLLM, FolderSandbox, ListRecorder, ManualClock
from ale.testing.played import play as play_in
from ale.testing.waiting import until
from ale.types import Stop
from ale_agent_iflow.options import IflowOptions
from ale_agent_iflow.plugin import ale_agents

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
        max_reminders=5,
    )
    assert len(played.turns) > 1
    answered = {request.turn: request for request in played.llm.requests}
    for i, turn in enumerate(played.turns):
        assert played.trajectory.messages(i) == answered[i].messages
        assert turn.fresh_context == answered[i].fresh_context
        calls = turn.completion.message.tool_calls
        assert not native or [o.call_id for o in turn.observations] == [c.id for c in calls]


async def test_random_episodes_are_compacted(play):
    rng = random.Random(0)
    n_fresh = 0
    for _ in range(10):
        played = await play(*random_answers(rng, native=True), context_max_tokens=1500)
        n_fresh += sum(turn.fresh_context for turn in played.turns[1:])
    assert n_fresh > 5


async def test_each_message_is_stored_once(play):
    played = await play(shell_call("echo a"), answer(""), shell_call("echo b"), FINISH)
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


# -- compaction


async def test_a_conversation_that_grows_too_long_is_compacted_and_continues(play):
    played = await play(
        *[shell_call(output(1500))] * 8, FINISH, context_max_tokens=1600, max_output_bytes=2048
    )
    assert played.stop.reason == "finished"
    fresh = [i for i, turn in enumerate(played.turns) if turn.fresh_context]
    assert fresh[0] == 0
    assert len(fresh) > 1
    compacted = played.llm.requests[fresh[1]]
    assert compacted.fresh_context
    system, task = played.llm.requests[0].messages
    assert compacted.messages[0] == system
    assert compacted.messages[1].content.startswith(
        f"{task.content}\n\n[Earlier steps are left out"
    )
    assert "- shell head -c 1500 /dev/zero | tr" in compacted.messages[1].content


async def test_the_providers_count_triggers_compaction(play):
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


async def test_a_provider_that_keeps_refusing_ends_the_episode(play):
    played = await play(*[shell_call(output(4000))] * 4, *[ContextLengthError("no room")] * 3)
    assert (played.stop.reason, len(played.turns)) == ("context", 4)
    assert "no room" in played.stop.detail


async def test_a_provider_that_refuses_the_task_itself_ends_the_episode(play):
    played = await play(ContextLengthError("8 tokens at most"))
    assert played.stop.reason == "context"
    assert played.stop.detail == ("8 tokens at most, and compaction can't shorten it enough")


# -- answers without a call


@pytest.mark.parametrize(
    ("idle", "words"),
    [
        (answer("I am done."), "Your answer had no tool call, so nothing was done. "),
        (answer(" \n"), "Your answer was empty. "),
        (answer("So", finish_reason="length"), "Your answer was cut off at the token limit "),
        (answer("", finish_reason="content_filter"), "Your answer was withheld by the provider"),
    ],
)
async def test_a_reminder_says_why_an_answer_did_nothing(play, idle, words):
    played = await play(idle, FINISH)
    assert played.prompt_of(1).startswith(words)
    assert played.prompt_of(1).endswith("Call a tool to continue, or finish if the task is done.")
    assert played.stop.reason == "finished"


async def test_after_two_reminders_in_a_row_the_episode_is_given_up(play):
    played = await play(answer("Hm."), answer("Hm."), answer("Hm."))
    assert played.stop.reason == "gave_up"
    assert played.stop.detail == "3 answers in a row without a tool call"
    assert len(played.turns) == 3


async def test_a_call_in_between_resets_the_count_of_reminders(play):
    empty = answer("")
    played = await play(empty, empty, shell_call("true"), empty, empty, FINISH)
    assert played.stop.reason == "finished"


async def test_reminders_can_be_turned_off(play):
    played = await play(answer("Hm."), max_reminders=0)
    assert played.stop.reason == "gave_up"


async def test_text_after_a_call_ends_the_episode_as_finished(play):
    played = await play(shell_call("touch here"), answer("Done."))
    assert played.stop == Stop(reason="finished", detail="Done.")
    assert [turn.credited for turn in played.turns] == [True, True]


async def test_text_before_any_call_does_not_end_the_episode(play):
    played = await play(answer("I will list the files."), shell_call("ls"), FINISH)
    assert played.stop.reason == "finished"
    assert [turn.credited for turn in played.turns] == [False, True, True]


async def test_with_finish_text_any_text_ends_the_episode_with_one_request(play):
    played = await play(answer("Done."), finish="text")
    assert played.stop == Stop(reason="finished", detail="Done.")
    assert len(played.llm.requests) == 1


@pytest.mark.parametrize(
    "idle",
    [
        answer(" \n"),
        answer("So", finish_reason="length"),
        answer("", finish_reason="content_filter"),
        answer("<think>Am I done?</think>\n"),
        answer("<think>Am I"),
    ],
)
async def test_an_answer_that_is_empty_or_cut_off_does_not_end_the_episode(play, idle):
    played = await play(shell_call("true"), idle, FINISH)
    assert played.stop.detail == "done"
    assert [turn.credited for turn in played.turns] == [True, False, True]


async def test_with_finish_tool_text_is_answered_with_reminders_and_not_credited(play):
    done = answer("Done.")
    played = await play(shell_call("true"), done, done, done, finish="tool")
    assert played.stop.reason == "gave_up"
    assert [turn.credited for turn in played.turns] == [True, False, False, False]


async def test_the_tools_of_a_request_are_recorded(play):
    played = await play(shell_call("true"), FINISH)
    assert played.trajectory.tools() == played.llm.requests[0].tools
    assert [bool(turn.tools) for turn in played.turns] == [True, False]
    assert [tool.name for tool in played.trajectory.tools(0)][-1] == "finish"


# -- a server that takes no tools

NO_TOOLS = ToolsUnsupportedError("status 400 (no tools)")


async def test_a_server_that_takes_no_tools_is_asked_again_with_calls_as_text(play, caplog):
    call = '```tool\n{"name": "shell", "arguments": {"command": "touch here"}}\n```'
    played = await play(NO_TOOLS, answer(call), answer("Done."))
    assert played.stop.reason == "finished"
    assert (played.folder / "here").exists()
    assert [bool(request.tools) for request in played.llm.requests] == [True, False, False]
    assert "```tool" in played.llm.requests[1].messages[0].content
    assert played.trajectory.tools() == ()
    assert "the model takes no tools, so calls are written as text" in caplog.text


async def test_later_episodes_of_the_agent_start_with_text_and_warn_no_more(tmp_path, caplog):
    agent = ale_agents()[0].build(IflowOptions(), BuildContext())
    for answers in ([NO_TOOLS, answer("a"), answer("b"), answer("c")], [answer("a")] * 3):
        later = await play_in(agent, FolderSandbox(tmp_path), answers)
        assert later.stop.reason == "gave_up"
    assert not any(request.tools for request in later.llm.requests)
    assert len(caplog.records) == 1


async def test_with_native_tools_in_the_options_a_refusal_of_tools_is_an_error(play):
    with pytest.raises(ToolsUnsupportedError):
        await play(NO_TOOLS, tool_format="native")


async def test_a_refusal_of_tools_after_an_answer_is_an_error(play):
    with pytest.raises(ToolsUnsupportedError):
        await play(shell_call("true"), NO_TOOLS)


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
    await until((Path(sandbox.workdir) / "f").exists)
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


async def test_the_first_request_has_the_goal_and_no_path_that_differs_between_runs(play):
    played = await play(FINISH, task=builders.task(goal="Write a haiku."))
    system, goal = played.llm.requests[0].messages
    assert "working directory" in system.content
    assert str(played.folder) not in system.content
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


def test_an_unreadable_prompt_is_an_error_of_the_config(tmp_path):
    build = ale_agents()[0].build
    with pytest.raises(InputError, match="can't be read"):
        build(IflowOptions(system_prompt_file=tmp_path / "none"), BuildContext())
    with pytest.raises(InputError, match="not both"):
        build(IflowOptions(system_prompt="a", system_prompt_file=tmp_path), BuildContext())
