"""A recorded run answers as its model did."""

import asyncio
import logging
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from ale.errors import InputError, LLMError, StoreError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.builders import conversation, episode, turn
from ale.types import CompletionRequest, Episode, LLMCapabilities, Message
from ale_llm_scripted.options import ScriptedOptions
from ale_llm_scripted.plugin import ale_llms
from ale_llm_scripted.replay import Recording


def write(run: Path, *episodes: Episode, tail: bytes = b"") -> Path:
    run.mkdir(exist_ok=True)
    lines = b"".join(msgspec.json.encode(each) + b"\n" for each in episodes)
    (run / "episodes.jsonl").write_bytes(lines + tail)
    return run


def model(run: Path, **options: object) -> LLM:
    (component,) = ale_llms()
    return component.build(ScriptedOptions(replay=run, **options), BuildContext())  # type: ignore[arg-type]


async def ask(
    llm: LLM, n: int = 0, *, task_id: str = "demo", rollout: int = 0, step: int = 0
) -> str:
    answer = await llm.complete(
        CompletionRequest(
            messages=(Message(role="user", content="Go."),),
            conversation=conversation(
                f"{step}-{task_id}-{rollout}", task_id=task_id, rollout=rollout
            ),
            turn=n,
        )
    )
    return answer.message.content


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(
        tmp_path / "run",
        episode(1.0, turn("look", calls=[("shell", '{"command":"ls"}')]), turn("né"), rollout=0),
        episode(0.0, turn("other"), rollout=1),
        episode(0.0, turn("second task"), task_id="more"),
    )


async def test_each_rollout_is_answered_as_it_was(run: Path) -> None:
    llm = model(run)
    assert await ask(llm, 0) == "look"
    assert await ask(llm, 1) == "né"
    assert await ask(llm, rollout=1) == "other"
    assert await ask(llm, task_id="more") == "second task"
    await llm.aclose()


async def test_a_recorded_completion_comes_back_whole(tmp_path: Path) -> None:
    recorded = turn("hi", calls=[("shell", "{not json")], tokens=4)
    llm = model(write(tmp_path / "run", episode(1.0, recorded)))
    answer = await llm.complete(CompletionRequest(messages=(), conversation=conversation(), turn=0))
    assert answer == recorded.completion
    await llm.aclose()


async def test_after_the_recording_comes_an_empty_answer_or_an_error(run: Path) -> None:
    stops, fails = model(run), model(run, at_end="error")
    assert await ask(stops, 2) == ""
    with pytest.raises(LLMError, match="no line for turn 2 of task 'demo', rollout 0"):
        await ask(fails, 2)
    await stops.aclose()
    await fails.aclose()


async def test_a_rollout_that_was_not_recorded_is_an_error_that_says_which_were(run: Path) -> None:
    llm = model(run)
    with pytest.raises(LLMError, match=r"no rollout 2 of task 'demo'.*rollouts \[0, 1\]"):
        await ask(llm, rollout=2)
    with pytest.raises(LLMError, match="it does not have the task"):
        await ask(llm, task_id="unknown")
    await llm.aclose()


async def test_of_two_lines_of_one_episode_the_later_counts(tmp_path: Path) -> None:
    broken, again = episode(None, turn("cut")), episode(1.0, turn("whole"))
    llm = model(write(tmp_path / "run", broken, again))
    assert await ask(llm) == "whole"
    assert await ask(llm, step=9) == "whole"
    await llm.aclose()


async def test_an_episode_of_a_training_run_is_found_in_its_own_step(tmp_path: Path) -> None:
    steps = [
        Episode(
            id=f"{step}-demo-0",
            task_id="demo",
            step=step,
            reward=1.0,
            trajectory=episode(1.0, turn(f"step {step}")).trajectory,
        )
        for step in (1, 0, 2)
    ]
    llm = model(write(tmp_path / "run", *steps))
    assert [await ask(llm, step=step) for step in (0, 1, 2)] == ["step 0", "step 1", "step 2"]
    assert await ask(llm, step=7) == "step 0"
    await llm.aclose()


async def test_an_incomplete_last_line_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    half = msgspec.json.encode(episode(1.0, turn("lost"), rollout=1))[:-40]
    with caplog.at_level(logging.WARNING):
        llm = model(write(tmp_path / "run", episode(1.0, turn("kept")), tail=half))
    assert await ask(llm) == "kept"
    with pytest.raises(LLMError, match="no rollout 1"):
        await ask(llm, rollout=1)
    assert "episodes.jsonl:2: half a line at the end, left out" in caplog.text
    await llm.aclose()


async def test_a_whole_last_line_without_its_newline_is_read(tmp_path: Path) -> None:
    whole = msgspec.json.encode(episode(1.0, turn("read"), rollout=1))
    llm = model(write(tmp_path / "run", episode(1.0, turn("kept")), tail=whole))
    assert await ask(llm, rollout=1) == "read"
    await llm.aclose()


@pytest.mark.parametrize("line", [b'{"id": "half', b'{"id": "\xff"}'])
def test_a_broken_line_before_the_end_is_an_error_with_its_number(
    tmp_path: Path, line: bytes
) -> None:
    good = msgspec.json.encode(episode(1.0, turn("x"))) + b"\n"
    run = write(tmp_path / "run", tail=good + line + b"\n" + good)
    with pytest.raises(StoreError, match=r"episodes\.jsonl:2: not an episode"):
        model(run)


def test_an_episode_of_another_schema_is_an_error(tmp_path: Path) -> None:
    newer = msgspec.json.encode(Episode(schema=2, id="a", task_id="demo", reward=1.0))
    with pytest.raises(StoreError, match="schema 2; only 1 can be replayed"):
        model(write(tmp_path / "run", tail=newer + b"\n"))


def test_a_folder_without_episodes_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a run directory: episodes\.jsonl can't be read"):
        model(tmp_path)
    with pytest.raises(InputError, match="no episode to replay"):
        model(write(tmp_path / "run"))


def test_recorded_calls_are_a_problem_for_a_model_without_tools(run: Path) -> None:
    with pytest.raises(InputError, match="the option 'tools' is off"):
        model(run, tools=False)


@pytest.mark.parametrize(
    ("turns", "at_end", "traced"),
    [
        ([turn("a", tokens=2), turn("b", tokens=3)], "error", True),
        ([turn("a", tokens=2), turn("b")], "error", False),
        ([turn("a", tokens=2)], "stop", False),
    ],
)
async def test_tokens_are_promised_only_where_every_answer_has_them(
    tmp_path: Path, turns: list[object], at_end: str, traced: bool
) -> None:
    llm = model(write(tmp_path / "run", episode(1.0, *turns)), at_end=at_end)  # type: ignore[arg-type]
    assert llm.capabilities == LLMCapabilities(
        tools=True, token_ids=traced, logprobs=traced, deterministic=True
    )
    await llm.aclose()


async def test_sixty_four_conversations_replay_at_once(tmp_path: Path) -> None:
    episodes = [episode(1.0, turn(f"a{r}"), turn(f"b{r}"), rollout=r) for r in range(64)]
    llm = model(write(tmp_path / "run", *episodes))
    asked = [(n, r) for n in (1, 0) for r in range(64)]
    answers = await asyncio.gather(*(ask(llm, n, rollout=r) for n, r in asked))
    assert answers == [f"{'ab'[n]}{r}" for n, r in asked]
    await llm.aclose()


async def test_a_closed_model_raises_an_error(run: Path) -> None:
    llm = model(run)
    await llm.aclose()
    await llm.aclose()
    with pytest.raises(LLMError, match="the model is closed"):
        await ask(llm)


def test_the_index_holds_no_episode_in_memory(tmp_path: Path) -> None:
    big = episode(1.0, turn("x" * 2_000_000))
    run = write(tmp_path / "run", *[big] * 10)
    tracemalloc.start()
    recording = Recording(run)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    recording.close()
    assert held < 200_000
