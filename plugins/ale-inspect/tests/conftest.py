"""Runs on disk, as the store writes them, and a package whose parts credit them again."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen
from click.testing import CliRunner, Result

from ale._store import Redactor, RunDirectory
from ale.plugin import Component, doc, hookimpl
from ale.runs import Registry
from ale.types import Chunk, Credit, CreditedEpisode, Episode, Group, Span, Trajectory
from ale_inspect.plugin import ale_commands

Ale = Callable[..., Result]


@frozen(kw_only=True)
class ScaledOptions:
    """How much the reward counts."""

    scale: float = field(default=1.0, metadata=doc("Weight of a reward of 1."))


@frozen(kw_only=True)
class Scaled:
    """Every chunk earns the scaled reward."""

    scale: float

    def assign(self, group: Group) -> Sequence[Credit]:
        return [
            Credit(
                episode_id=rollout.episode.id,
                scheme="scaled",
                rewards=(0.0,) * len(rollout.chunks),
                returns=(rollout.episode.reward or 0.0,) * len(rollout.chunks),
                weights=(self.scale * (rollout.episode.reward or 0.0),) * len(rollout.chunks),
            )
            for rollout in group.rollouts
        ]


class ByTurn:
    """A chunk per turn."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        return [
            Chunk(index=i, kind="turn", spans=(_whole(turn, i),))
            for i, turn in enumerate(trajectory.turns)
        ]


def _whole(turn: Any, number: int) -> Span:
    message, tokens = turn.completion.message, turn.completion.tokens
    return Span(
        turn=number,
        text=(0, len(message.content)),
        calls=(0, len(message.tool_calls)),
        tokens=None if tokens is None else (0, len(tokens.output_ids)),
    )


class Parts:
    """A chunker and a credit scheme."""

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [Component("turns", None, lambda o, c: ByTurn(), summary="By turn.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        def build(options: ScaledOptions, _: Any) -> Scaled:
            return Scaled(scale=options.scale)

        return [Component("scaled", ScaledOptions, build, summary="The reward, scaled.")]


def write_run(
    path: Path,
    episodes: Sequence[Episode],
    *,
    manifest: Mapping[str, Any] | None = None,
    credited: bool = True,
    events: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Path:
    """A run that holds these episodes, cut by turn; each weight is the reward."""
    about = {
        "run_id": path.name,
        "n_tasks": len({episode.task_id for episode in episodes}),
        "config": {
            "chunker": {"type": "ale-parts/turns"},
            "credit": {"type": "ale-parts/scaled", "scale": 1.0},
        },
        "versions": {"ale-core": "0.1.0"},
        **(manifest or {}),
    }
    store = RunDirectory.create(path, about, Redactor({}))
    for episode in episodes:
        store.add_episode(episode)
    for name, facts in events:
        store.add_event(name, 0.0, **facts)
    for step in sorted({episode.step for episode in episodes}) if credited else ():
        with store.writing_credits(step) as keep:
            for episode in episodes:
                if episode.step == step and episode.reward is not None:
                    keep(credited_row(episode))
    store.close()
    return path


def credited_row(episode: Episode) -> CreditedEpisode:
    """An episode cut by turn; each weight is the reward."""
    chunks = tuple(ByTurn().split(episode.trajectory))
    reward = episode.reward or 0.0
    return CreditedEpisode(
        episode_id=episode.id,
        task_id=episode.task_id,
        step=episode.step,
        chunker="turns",
        chunks=chunks,
        credit=Credit(
            episode_id=episode.id,
            scheme="scaled",
            rewards=(0.0,) * len(chunks),
            returns=(reward,) * len(chunks),
            weights=(reward,) * len(chunks),
        ),
    )


@pytest.fixture
def registry() -> Registry:
    """What is installed: those parts."""
    made = Registry()
    made.add(Parts(), "ale-parts", "1.0")
    assert not made.quarantined
    return made


@pytest.fixture
def ale(registry: Registry) -> Ale:
    """Run one of this package's commands as `ale` does."""
    commands = {command.name: command for command in ale_commands()}

    def invoke(name: str, *arguments: str) -> Result:
        return CliRunner().invoke(commands[name], arguments, obj=registry)

    return invoke


@pytest.fixture
def write() -> Callable[..., Path]:
    """Put a run on disk."""
    return write_run
