"""A run with a trainer: a step follows complete groups, and a resumed run goes on from there."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import evolve

from ale._config import Selected
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import resume
from ale.plugin import Component, hookimpl
from ale.protocols import LLM
from ale.types import Batch, PolicySnapshot, StepReport

Finish = Callable[[Run], Any]


class Counter:
    """A trainer that counts what it was given."""

    made: ClassVar[list["Counter"]] = []

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[str]]] = []
        self.total = 0
        Counter.made.append(self)

    def attach(self, llm: LLM | None) -> None:
        self.model = llm

    async def step(self, batch: Batch) -> StepReport:
        ids = [r.episode.id for credited in batch.groups for r in credited.group.rollouts]
        self.seen.append((batch.step, ids))
        self.total += len(ids)
        metrics = {"total": float(self.total)}
        return StepReport(step=batch.step, policy_version=batch.step + 1, metrics=metrics)

    def snapshot(self) -> PolicySnapshot:
        return PolicySnapshot(version=0)

    def save(self, directory: Path) -> None:
        (directory / "total.json").write_text(json.dumps(self.total))

    def load(self, directory: Path) -> None:
        self.total = json.loads((directory / "total.json").read_text())


class Training:
    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("count", None, lambda o, c: Counter(), summary="Counts.")]


@pytest.fixture(autouse=True)
def trainers(registry: Registry) -> list[Counter]:
    registry.add(Training(), "ale-count")
    Counter.made.clear()
    return Counter.made


def trained(workplace: Any, **run: Any) -> Any:
    config = workplace.config(**run)
    offer = workplace.registry.find("trainer", "count")
    resolved = {**config.resolved, "trainer": {"type": "count"}}
    return evolve(config, trainer=Selected(offer=offer, options=None), resolved=resolved)


async def test_every_step_trains_once_on_its_own_episodes(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = workplace.prepared(trained(workplace, n=2, steps=3, rollouts=2))
    await finish(run)
    (counter,) = trainers
    assert [step for step, _ in counter.seen] == [0, 1, 2]
    assert sorted(counter.seen[1][1]) == ["1-t0-0", "1-t0-1", "1-t1-0", "1-t1-1"]
    assert counter.total == 12
    saved = sorted(path.name for path in (run.store.path / "checkpoints").iterdir())
    assert saved == ["00000", "00001", "00002"]


async def test_a_resumed_run_goes_on_from_the_newest_checkpoint(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = workplace.prepared(trained(workplace, n=2, steps=3))
    await finish(run)
    # As if it had been killed after the second step.
    for path in (run.store.path / "checkpoints" / "00002").iterdir():
        path.unlink()
    (run.store.path / "checkpoints" / "00002").rmdir()
    await finish(resume(run.store.path, workplace.outside()))
    again = trainers[1]
    assert [step for step, _ in again.seen] == [2]
    assert again.total == 6


async def test_credits_that_were_deleted_are_made_again_without_training_again(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = workplace.prepared(trained(workplace, n=2, steps=3))
    await finish(run)
    rows = list(run.store.reader.credits())
    for path in (run.store.path / "credits").iterdir():
        path.unlink()
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert trainers[1].seen == []
    assert list(again.store.reader.credits()) == rows
