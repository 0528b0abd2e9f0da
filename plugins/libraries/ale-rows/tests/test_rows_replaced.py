"""Turns for which a part of the conversation was replaced: all data has what the model saw."""

from pathlib import Path
from typing import Any

import pytest

from ale.testing.builders import turn
from ale.types import Chunk, Episode, Message, Replaced, Trajectory, replace, whole_turn
from ale_rows import EpisodeRow, collect, export_rows, import_rows, read_rows
from ale_rows.chat import by_context
from ale_rows.contexts import answers
from ale_rows.imitation import conversations

from .conftest import tried

OLD, NEW = (Message(role="system", content=f"It is {clock}.") for clock in ("ten", "eleven"))
ASK = Message(role="user", content="Go.")
CLOCK = Replaced(start=0, stop=1, messages=(NEW,))


def episode() -> Episode:
    first = replace(turn("One."), prompt=(OLD, ASK), fresh_context=True)
    second = replace(turn("Two."), prompt=(ASK,), fresh_context=False, replaced=(CLOCK,))
    third = replace(turn("Three."), prompt=(ASK,), fresh_context=False)
    made = tried(1.0, turn("?"))
    turns = (first, second, third)
    return replace(made, trajectory=replace(made.trajectory, turns=turns))


@pytest.fixture
def trajectory() -> Trajectory:
    return episode().trajectory


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def test_the_conversation_before_each_turn_is_rebuilt(trajectory: Trajectory) -> None:
    assert trajectory.messages(0) == (OLD, ASK)
    assert trajectory.messages(1) == (NEW, ASK, said("One."), ASK)
    assert trajectory.messages(2) == (NEW, ASK, said("One."), ASK, said("Two."), ASK)


def test_imitation_has_a_conversation_for_each(trajectory: Trajectory) -> None:
    made = list(conversations(EpisodeRow(run="r", episode=episode()), None))
    assert [[message.content for message in row.messages] for row in made] == [
        ["It is ten.", "Go.", "One."],
        ["It is eleven.", "Go.", "One.", "Go.", "Two.", "Go.", "Three."],
    ]
    assert made[1].loss_weights == (0, 0, 0, 0, 1, 0, 1)


def test_a_chunk_is_cut_there(trajectory: Trajectory) -> None:
    spans = tuple(whole_turn(i, each) for i, each in enumerate(trajectory.turns))
    parts = by_context(trajectory, Chunk(index=0, kind="all", spans=spans))
    assert [len(part.spans) for part in parts] == [1, 2]


def test_its_prompt_is_that_of_a_conversation_told_whole(trajectory: Trajectory) -> None:
    first, second, third = trajectory.turns
    whole = replace(second, prompt=trajectory.messages(1), fresh_context=True, replaced=())
    told = Trajectory(turns=(first, whole, third))
    assert list(answers(trajectory)) == list(answers(told))


def test_atif_has_it(tmp_path: Path, run: Any) -> None:
    collect([run(episode())], tmp_path / "raw.jsonl")
    export_rows(tmp_path / "raw.jsonl", tmp_path / "lines.jsonl", form="atif")
    import_rows([tmp_path / "lines.jsonl"], tmp_path / "back.jsonl", form="atif")
    (before,) = read_rows(tmp_path / "raw.jsonl", EpisodeRow)
    (after,) = read_rows(tmp_path / "back.jsonl", EpisodeRow)
    assert after.episode.trajectory == before.episode.trajectory
