"""The tools of each row: those that the model was given."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale.runs import Registry
from ale.testing.builders import turn
from ale.types import Episode, Message, ToolSpec, Turn, replace
from ale_rows import (
    DpoRow,
    EpisodeRow,
    RlRow,
    SftRow,
    chat_tools,
    collect,
    export_rows,
    import_rows,
    make_dpo,
    make_rl,
    make_sft,
    read_rows,
    score,
)

from .conftest import acting, tried

SHELL = ToolSpec(name="shell", description="Run.", parameters={"type": "object"})
FINISH = ToolSpec(name="finish", description="End.", parameters={"type": "object"})
LATER = turn("Compacted.", fresh_context=True)

Score = Callable[..., Path]


@pytest.fixture
def scored(tmp_path: Path, run: Any, registry: Registry) -> Score:
    """Collect and score episodes."""

    def make(*episodes: Episode, **options: Any) -> Path:
        collect([run(*episodes)], tmp_path / "raw.jsonl", **options)
        score(tmp_path / "raw.jsonl", tmp_path / "scored.jsonl", registry)
        return tmp_path / "scored.jsonl"

    return make


def offering(*tools: ToolSpec, given: Episode) -> Episode:
    """The episode with tools in its first request."""
    first, *rest = given.trajectory.turns
    turns = (replace(first, tools=tools), *rest)
    return replace(given, trajectory=replace(given.trajectory, turns=turns))


def rollouts(*tools: ToolSpec) -> Sequence[Episode]:
    """Two attempts whose first answers differ, with other tools after a compaction."""
    later: Turn = replace(
        LATER, prompt=(Message(role="user", content="So far."),), tools=(SHELL, FINISH)
    )
    return [
        offering(*tools, given=tried(1.0, acting("I look.", "ls"), later, rollout=0)),
        offering(*tools, given=tried(0.0, turn("I guess."), later, rollout=1)),
    ]


def test_rows_have_the_tools_of_their_context(scored: Score) -> None:
    source = scored(*rollouts(SHELL))
    out = source.with_name("out.jsonl")
    first, second = chat_tools([SHELL]), chat_tools([SHELL, FINISH])
    make_rl(source, out)
    chunks = {row.completion[0].content: row.tools for row in read_rows(out, RlRow)}
    assert (chunks["I look."], chunks["I guess."]) == (first, first)
    assert chunks["Compacted."] == second
    make_sft(source, out, min_reward=0)
    conversations = list(read_rows(out, SftRow))
    assert [row.tools for row in conversations] == [first, second] * 2
    for pairing in ("same-prompt", "same-trajectory"):
        make_dpo(source, out, pairing=pairing)  # type: ignore[arg-type]
        (row,) = read_rows(out, DpoRow)
        assert row.tools == first, pairing


def test_a_pair_after_a_compaction_has_the_tools_of_that_context(scored: Score) -> None:
    changed = [
        offering(
            SHELL,
            given=tried(
                float(i),
                turn("Same."),
                replace(turn(f"It is {i}.", fresh_context=True), tools=(FINISH,)),
                rollout=i,
            ),
        )
        for i in (0, 1)
    ]
    source = scored(*changed)
    make_dpo(source, source.with_name("out.jsonl"), pairing="same-prompt")
    (row,) = read_rows(source.with_name("out.jsonl"), DpoRow)
    assert row.tools == chat_tools([FINISH])


def test_answers_to_requests_with_different_tools_are_not_compared(scored: Score) -> None:
    source = scored(
        offering(SHELL, given=tried(1.0, turn("A."), rollout=0)),
        offering(FINISH, given=tried(0.0, turn("B."), rollout=1)),
    )
    assert make_dpo(source, source.with_name("out.jsonl"), pairing="same-prompt").written == 0


@pytest.mark.parametrize(
    ("recorded", "override", "expected"),
    [
        ((), None, None),
        ((), (SHELL,), (SHELL,)),
        ((SHELL,), None, (SHELL,)),
        ((SHELL,), (FINISH,), (FINISH,)),
        ((SHELL,), (), None),
    ],
)
def test_tools_passed_to_collect_override_the_recorded_ones(
    scored: Score, recorded: Any, override: Any, expected: Any
) -> None:
    source = scored(
        offering(*recorded, given=tried(1.0, turn("A."), rollout=0)),
        offering(*recorded, given=tried(0.0, turn("B."), rollout=1)),
        tools=override,
    )
    make_dpo(source, source.with_name("out.jsonl"), pairing="same-prompt")
    (row,) = read_rows(source.with_name("out.jsonl"), DpoRow)
    assert row.tools == chat_tools(expected)


@pytest.mark.parametrize("form", ["openai", "sharegpt", "trl"])
def test_exported_chats_have_the_recorded_tools(scored: Score, form: Any) -> None:
    source = scored(*rollouts(SHELL))
    chats, back = (source.with_name(f"{name}.jsonl") for name in ("chats", "back"))
    export_rows(source, chats, form=form)
    import_rows([chats], back, form=form)
    found = [row.tools for row in read_rows(back, EpisodeRow)]
    assert found == [(SHELL,), (SHELL, FINISH)] * 2
