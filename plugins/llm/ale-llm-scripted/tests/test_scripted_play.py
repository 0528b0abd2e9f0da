"""What a script answers, and that nothing but conversation and turn decides it."""

import asyncio
import random
from pathlib import Path

import pytest

from ale.errors import LLMError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.builders import conversation
from ale.types import Completion, CompletionRequest, Message, Usage
from ale_llm_scripted.options import ScriptedOptions
from ale_llm_scripted.plugin import ale_llms

SCRIPT = """\
tasks:
  demo:
    - - {text: Look., calls: [{name: shell, arguments: {command: ls}}, {name: nothing}]}
      - {shell: cat notes.txt, reasoning: I should read it.}
      - Done.
  broken:
    - [{error: the provider is down, transient: true}, {error: no such model}]
  slow:
    - [{text: late, sleep_s: 0.05}]
  counted:
    - [{text: hi, tokens: 900, prompt_tokens: 31000}, hi]
"""


def model(folder: Path, text: str = SCRIPT, **options: object) -> LLM:
    path = folder / "script.yaml"
    path.write_text(text)
    (component,) = ale_llms()
    made = ScriptedOptions(script=path, **options)  # type: ignore[arg-type]
    return component.build(made, BuildContext())


def request(
    turn: int = 0, *, task_id: str = "demo", rollout: int = 0, seed: int = 0, text: str = "Do it."
) -> CompletionRequest:
    return CompletionRequest(
        messages=(Message(role="user", content=text),),
        conversation=conversation(
            f"0-{task_id}-{rollout}", task_id=task_id, rollout=rollout, seed=seed
        ),
        turn=turn,
    )


async def test_call_ids_have_the_turn_and_the_index(tmp_path: Path) -> None:
    llm = model(tmp_path)
    first, second, third = [await llm.complete(request(turn)) for turn in range(3)]
    assert [(c.id, c.name, c.arguments) for c in first.message.tool_calls] == [
        ("call_0_0", "shell", '{"command": "ls"}'),
        ("call_0_1", "nothing", "{}"),
    ]
    assert (first.message.content, first.finish_reason, first.model) == (
        "Look.",
        "tool_calls",
        "scripted",
    )
    assert second.message.tool_calls[0].id == "call_1_0"
    assert second.message.reasoning == "I should read it."
    assert third == Completion(
        message=Message(role="assistant", content="Done."),
        model="scripted",
        usage=Usage(prompt_tokens=9, completion_tokens=6),
    )


async def test_after_the_last_line_comes_an_empty_answer(tmp_path: Path) -> None:
    answer = await model(tmp_path).complete(request(3))
    assert (answer.message, answer.finish_reason) == (Message(role="assistant"), "stop")


async def test_after_the_last_line_comes_an_error_if_configured(tmp_path: Path) -> None:
    llm = model(tmp_path, at_end="error")
    with pytest.raises(LLMError, match="no line for turn 3 of task 'demo', rollout 0") as raised:
        await llm.complete(request(3))
    assert not raised.value.transient


async def test_a_task_without_lines_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(LLMError, match=r"no lines for task 'dem'.*did you mean 'demo'\?"):
        await model(tmp_path).complete(request(task_id="dem"))


async def test_errors_are_raised_as_written_each_time_that_they_are_asked_for(
    tmp_path: Path,
) -> None:
    llm = model(tmp_path)
    for _ in range(2):
        with pytest.raises(LLMError, match="the provider is down") as raised:
            await llm.complete(request(task_id="broken"))
        assert raised.value.transient
    with pytest.raises(LLMError, match="no such model") as raised:
        await llm.complete(request(1, task_id="broken"))
    assert not raised.value.transient


async def test_tokens_are_reported_as_written_else_one_per_byte(tmp_path: Path) -> None:
    llm = model(tmp_path)
    written = await llm.complete(request(0, task_id="counted"))
    counted = await llm.complete(request(1, task_id="counted"))
    assert written.usage == Usage(prompt_tokens=31000, completion_tokens=900)
    assert counted.usage == Usage(prompt_tokens=9, completion_tokens=3)


@pytest.mark.parametrize(("task_id", "latency_s"), [("slow", 0.0), ("demo", 0.05)])
async def test_an_answer_is_delayed(tmp_path: Path, task_id: str, latency_s: float) -> None:
    llm = model(tmp_path, latency_s=latency_s)
    loop = asyncio.get_running_loop()
    start = loop.time()
    await llm.complete(request(task_id=task_id))
    assert loop.time() - start >= 0.045


async def test_a_pause_can_be_cancelled(tmp_path: Path) -> None:
    llm = model(tmp_path, latency_s=60.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(llm.complete(request()), 0.02)


async def test_sixty_four_conversations_at_once_get_what_each_gets_alone(tmp_path: Path) -> None:
    scripts = "\n".join(f"    - [a{r}, b{r}, c{r}]" for r in range(64))
    text = f"tokens: true\ntasks:\n  demo:\n{scripts}\n"
    llm = model(tmp_path, text, latency_s=0.001)
    asked = [request(turn, rollout=rollout) for rollout in range(64) for turn in range(3)]
    alone = {(r.conversation.rollout, r.turn): await llm.complete(r) for r in asked}
    random.Random(7).shuffle(asked)
    together = await asyncio.gather(*(llm.complete(r) for r in asked))
    assert [alone[r.conversation.rollout, r.turn] for r in asked] == together
    assert alone[63, 2].message.content == "c63"


async def test_answers_do_not_depend_on_earlier_requests(
    tmp_path: Path,
) -> None:
    text = "tokens: true\ndefault: [one, {shell: ls}, three]\n"
    one, other = model(tmp_path, text), model(tmp_path, text)
    backwards = [await one.complete(request(turn)) for turn in (2, 1, 0)]
    forwards = [await other.complete(request(turn)) for turn in (0, 1, 2)]
    assert backwards[::-1] == forwards


async def test_answers_do_not_depend_on_the_messages(tmp_path: Path) -> None:
    llm = model(tmp_path)
    answers = [await llm.complete(request(text=text)) for text in ("Do it.", "Don't.")]
    assert answers[0].message == answers[1].message


@pytest.mark.parametrize("tools", [True, False])
async def test_capabilities_match_the_script(tmp_path: Path, tools: bool) -> None:
    plain = model(tmp_path, "default: [hi]", tools=tools).capabilities
    traced = model(tmp_path, "tokens: true\ndefault: [hi]", tools=tools).capabilities
    assert (plain.tools, plain.token_ids, plain.logprobs) == (tools, False, False)
    assert (traced.tools, traced.token_ids, traced.logprobs) == (tools, True, True)
    assert plain.deterministic


def test_exactly_one_of_script_and_replay_is_taken(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exactly one of 'script' and 'replay'"):
        ScriptedOptions()
    with pytest.raises(ValueError, match="exactly one of 'script' and 'replay'"):
        ScriptedOptions(script=tmp_path, replay=tmp_path)
