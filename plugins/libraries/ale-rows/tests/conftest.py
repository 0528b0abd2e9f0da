"""Runs on disk, as the store writes them, and parts that cut and credit them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from ale._store import Redactor, RunDirectory
from ale.plugin import Component, doc, hookimpl
from ale.runs import Registry
from ale.testing.builders import episode, turn
from ale.testing.fakes import FakeChunker
from ale.types import (
    Chunk,
    Credit,
    Episode,
    Failure,
    Group,
    Message,
    Span,
    Trajectory,
    Turn,
    replace,
    whole_turn,
)

WriteRun = Callable[..., Path]
_BROKE = Failure(stage="sandbox", kind="SandboxError", message="no space")
SYSTEM = Message(role="system", content="You work in a shell.")


class ByPart:
    """A chunk per text and one per call."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        spans = [span for i, turn in enumerate(trajectory.turns) for span in _spans(turn, i)]
        return [Chunk(index=k, kind="part", spans=(span,)) for k, span in enumerate(spans)]


class InRuns:
    """A chunk per so many turns in a row."""

    def __init__(self, n: int) -> None:
        self._n = n

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        spans = [whole_turn(i, turn) for i, turn in enumerate(trajectory.turns)]
        runs = [tuple(spans[i : i + self._n]) for i in range(0, len(spans), self._n)]
        return [Chunk(index=k, kind="run", spans=each) for k, each in enumerate(runs)]


def _spans(turn: Turn, number: int) -> Iterable[Span]:
    message = turn.completion.message
    n = len(message.content)
    trace = turn.completion.tokens
    all_tokens = None if trace is None else (0, len(trace.output_ids))
    if not message.tool_calls:
        return [Span(turn=number, text=(0, n), calls=(0, 0), tokens=all_tokens)]
    calls = [
        Span(turn=number, text=(n, n), calls=(i, i + 1)) for i in range(len(message.tool_calls))
    ]
    return [Span(turn=number, text=(0, n), calls=(0, 0)), *calls]


@frozen(kw_only=True)
class GrowingOptions:
    """How much the reward counts."""

    scale: float = field(default=1.0, metadata=doc("Of a reward of 1."))


@frozen(kw_only=True)
class Growing:
    """Chunk k of K earns k / K of the reward; the weight is that less the batch's mean."""

    scale: float

    def assign(self, group: Group) -> Sequence[Credit]:
        return [self._credit(rollout, group.batch.mean_reward) for rollout in group.rollouts]

    def _credit(self, rollout: Any, mean: float) -> Credit:
        n, reward = len(rollout.chunks), self.scale * rollout.episode.reward
        earned = tuple(reward * (k + 1) / n for k in range(n))
        return Credit(
            episode_id=rollout.episode.id,
            scheme="growing",
            rewards=earned,
            returns=earned,
            weights=tuple(value - mean for value in earned),
        )


class Wrong:
    """Gives what is no number."""

    def assign(self, group: Group) -> Sequence[Credit]:
        return [
            Credit(
                episode_id=rollout.episode.id,
                scheme="wrong",
                rewards=(0.0,) * len(rollout.chunks),
                returns=(float("nan"),) * len(rollout.chunks),
                weights=(0.0,) * len(rollout.chunks),
            )
            for rollout in group.rollouts
        ]


class Parts:
    """What is installed in these tests."""

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [
            Component("ale-lite", None, lambda o, c: ByPart(), summary="By part."),
            Component("turns", None, lambda o, c: FakeChunker(), summary="By turn."),
            Component("twos", None, lambda o, c: InRuns(2), summary="By two turns."),
            Component("whole", None, lambda o, c: InRuns(1000), summary="One chunk."),
        ]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        def build(options: GrowingOptions, _: Any) -> Growing:
            return Growing(scale=options.scale)

        return [
            Component("ipa-lite", GrowingOptions, build, summary="Growing."),
            Component("wrong", None, lambda o, c: Wrong(), summary="Not a number."),
        ]


@pytest.fixture
def registry() -> Registry:
    """What is installed: those parts."""
    made = Registry()
    made.add(Parts(), "ale-parts", "1.0")
    assert not made.failed
    return made


@pytest.fixture
def run(tmp_path: Path) -> WriteRun:
    """Put a run on disk."""

    def write(*episodes: Episode, name: str = "a", folder: str = "runs") -> Path:
        manifest = {"run_id": name, "n_tasks": 1, "config": {"chunker": {"type": "turns"}}}
        path = tmp_path / folder / name
        store = RunDirectory.create(path, manifest, Redactor({}))
        for each in episodes:
            store.add_episode(each)
        store.close()
        return path

    return write


def asked(goal: str, *turns: Turn, workdir: str = "/workspace") -> tuple[Turn, ...]:
    """Turns of which the first is asked for the goal, in a folder."""
    system = replace(SYSTEM, content=f"You work in a shell.\nWorking directory: {workdir}.")
    prompt = (system, Message(role="user", content=goal))
    first = replace(turns[0], prompt=prompt, fresh_context=True)
    return (first, *turns[1:])


def tried(
    reward: float | None,
    *turns: Turn,
    goal: str = "Count.",
    task_id: str = "count",
    rollout: int = 0,
    workdir: str = "/workspace",
    **changes: object,
) -> Episode:
    """An episode that was asked for a goal."""
    made = episode(reward, *asked(goal, *turns, workdir=workdir), task_id=task_id, rollout=rollout)
    return replace(made, **changes)


def acting(text: str, *commands: str, **more: Any) -> Turn:
    """A turn that calls the shell."""
    return turn(text, calls=[("shell", f'{{"command": "{each}"}}') for each in commands], **more)


@pytest.fixture
def some() -> Sequence[Episode]:
    """Three rollouts of one task, one of another, one that broke and an evaluation."""
    return [
        tried(1.0, acting("I look.", "ls"), acting("", "wc -l a"), turn("Done."), rollout=0),
        tried(0.0, acting("I guess.", "echo 3"), turn("Done."), rollout=1),
        tried(0.5, acting("I look.", "ls"), turn("No idea."), rollout=2),
        tried(1.0, turn("Easy."), task_id="easy", goal="Say easy."),
        replace(tried(None, turn("?"), rollout=3), failure=_BROKE),
        tried(1.0, turn("Held."), split="evaluation", id="evaluation-0-count-0"),
    ]
