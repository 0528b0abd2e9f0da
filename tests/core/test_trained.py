"""A run with a trainer: a step follows complete groups, and a resumed run goes on from there."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import evolve

from ale._config import Selected
from ale._config.model import RunOptions
from ale._registry import Registry
from ale._run import training
from ale._run.parts import build_parts
from ale._run.run import Run
from ale._run.start import resume
from ale.errors import AleError, InputError
from ale.plugin import BuildContext, Component, hookimpl
from ale.protocols import LLM
from ale.testing.fakes import FakeCreditScheme
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
    registration = workplace.registry.find("trainer", "count")
    resolved = {**config.resolved, "trainer": {"type": "count"}}
    return evolve(
        config, trainer=Selected(registration=registration, options=None), resolved=resolved
    )


async def test_every_step_trains_once_on_its_own_episodes(
    workplace: Any, trainers: list[Counter], bench: Any
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3, rollouts=2))
    (counter,) = trainers
    assert [step for step, _ in counter.seen] == [0, 1, 2]
    assert sorted(counter.seen[1][1]) == ["1-t0-0", "1-t0-1", "1-t1-0", "1-t1-1"]
    assert counter.total == 12
    saved = sorted(path.name for path in (run.store.path / "checkpoints").iterdir())
    assert saved == ["00000", "00001", "00002"]


async def test_a_resumed_run_continues_from_the_newest_checkpoint(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    # As if it had been killed after the second step.
    for path in (run.store.path / "checkpoints" / "00002").iterdir():
        path.unlink()
    (run.store.path / "checkpoints" / "00002").rmdir()
    await finish(resume(run.store.path, workplace.outside()))
    again = trainers[1]
    assert [step for step, _ in again.seen] == [2]
    assert again.total == 6


async def test_a_checkpoint_of_another_step_is_refused(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    folder = run.store.path / "checkpoints"
    shutil.rmtree(folder / "00002")
    (folder / "00001").rename(folder / "00002")
    with pytest.raises(InputError, match="of step 1, not of step 2") as refused:
        await finish(resume(run.store.path, workplace.outside()))
    assert refused.value.problems[0].file == str(folder / "00002" / "step.json")


async def test_a_damaged_report_of_a_step_is_named(
    workplace: Any, finish: Finish, trainers: list[Counter]
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    report = run.store.path / "checkpoints" / "00002" / "step.json"
    report.write_bytes(report.read_bytes().replace(b'"metrics":{', b'"metrics":{"\xff":1.0,', 1))
    with pytest.raises(InputError, match=r"step\.json: .*(?i:utf-8)"):
        await finish(resume(run.store.path, workplace.outside()))


async def test_credits_that_were_deleted_are_made_again_without_training_again(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    rows = list(run.store.reader.credits())
    for path in (run.store.path / "credits").iterdir():
        path.unlink()
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert trainers[1].seen == []
    assert list(again.store.reader.credits()) == rows


class WithCritic(Counter):
    """A trainer that completes credit with a critic."""

    has_critic = True


class ForCritic(FakeCreditScheme):
    """A credit scheme that a critic completes."""

    needs_critic = True


def build_both(workplace: Any, registry: Registry, credit: Any, trainer: Any) -> None:
    class Offered:
        @hookimpl
        def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
            return [Component("chosen", None, lambda o, c: credit(), summary="A scheme.")]

        @hookimpl
        def ale_trainers(self) -> Sequence[Component[Any, Any]]:
            return [Component("chosen", None, lambda o, c: trainer(), summary="A trainer.")]

    registry.add(Offered(), "ale-chosen")
    picked = {
        kind: Selected(registration=registry.find(kind, "chosen"), options=None)
        for kind in ("credit", "trainer")
    }
    build_parts(evolve(workplace.config(), **picked), BuildContext())


def test_credit_for_a_critic_needs_a_trainer_with_one(
    workplace: Any, registry: Registry, trainers: list[Counter]
) -> None:
    with pytest.raises(InputError, match="needs the values of a critic") as caught:
        build_both(workplace, registry, ForCritic, Counter)
    assert caught.value.problems[0].path == "credit.type"
    assert "critic: {type: head}" in str(caught.value)


def test_a_critic_whose_values_nothing_uses_is_refused(
    workplace: Any, registry: Registry, trainers: list[Counter]
) -> None:
    with pytest.raises(InputError, match="does not use its values") as caught:
        build_both(workplace, registry, FakeCreditScheme, WithCritic)
    assert caught.value.problems[0].path == "trainer.critic"


def test_a_critic_and_credit_for_it_are_accepted(
    workplace: Any, registry: Registry, trainers: list[Counter]
) -> None:
    build_both(workplace, registry, ForCritic, WithCritic)


def checkpoints(run: Run) -> list[str]:
    return sorted(path.name for path in (run.store.path / "checkpoints").iterdir())


async def test_a_step_whose_checkpoint_was_deleted_is_not_trained_again(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    shutil.rmtree(run.store.path / "checkpoints" / "00000")
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert trainers[1].seen == []
    assert trainers[1].total == 6
    assert checkpoints(again) == ["00001", "00002"]


async def test_the_newest_checkpoints_are_kept_and_as_many_as_the_config_says(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    everything = await workplace.ran(trained(workplace, steps=4, keep_checkpoints=None))
    assert checkpoints(everything) == ["00000", "00001", "00002", "00003"]
    after_two_and_four = await workplace.ran(
        trained(workplace, steps=5, keep_checkpoints=1, keep_checkpoints_every=2)
    )
    assert checkpoints(after_two_and_four) == ["00001", "00003", "00004"]
    assert RunOptions().keep_checkpoints == 2
    two = await workplace.ran(trained(workplace, steps=4, keep_checkpoints=2))
    assert checkpoints(two) == ["00002", "00003"]
    one = await workplace.ran(trained(workplace, steps=4, keep_checkpoints=1))
    assert checkpoints(one) == ["00003"]
    await finish(resume(one.store.path, workplace.outside()))
    assert trainers[-1].seen == []


async def test_a_folder_not_named_after_a_step_is_not_a_checkpoint_and_stays(
    workplace: Any, finish: Finish, trainers: list[Counter], bench: Any
) -> None:
    run = workplace.prepared(trained(workplace, steps=2, keep_checkpoints=1))
    copy = run.store.path / "checkpoints" / "00009.bak"
    copy.mkdir(parents=True)
    await finish(run)
    assert checkpoints(run) == ["00001", "00009.bak"]


class Killed(BaseException):
    """Nothing that comes after it is done."""


async def test_a_removal_that_is_interrupted_half_way_does_no_harm(
    workplace: Any,
    finish: Finish,
    trainers: list[Counter],
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remove = shutil.rmtree

    def interrupted(path: Path, *more: Any, **options: Any) -> None:
        if (path / "total.json").exists():
            (path / "total.json").unlink()
            raise Killed
        remove(path, *more, **options)

    run = workplace.prepared(trained(workplace, n=2, steps=3, keep_checkpoints=1))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(BaseExceptionGroup):
            await finish(run)
    assert checkpoints(run) == [".00000.partial", "00001"]
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert [step for step, _ in trainers[1].seen] == [2]
    assert trainers[1].total == 6
    assert checkpoints(again) == ["00002"]
    reported = [event["step"] for event in again.store.reader.events() if "metrics" in event]
    assert reported == [0, 1, 2]


class InBackground(Counter):
    """Its checkpoints are written when the next step has been trained, if there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.trained = threading.Event()
        self.begun: list[Path] = []
        self.left: list[list[str]] = []

    async def step(self, batch: Batch) -> StepReport:
        report = await super().step(batch)
        if self.begun:
            self.left.append(sorted(path.name for path in self.begun[-1].parent.iterdir()))
        self.trained.set()
        return report

    def start_saving(self, directory: Path) -> Callable[[], None]:
        total, last = self.total, directory.name == ".00002.partial"
        self.begun.append(directory)
        self.trained = threading.Event()
        trained = self.trained

        def finish() -> None:
            assert last or trained.wait(60)
            (directory / "total.json").write_text(json.dumps(total))

        return finish


@pytest.fixture
def in_background(trainers: list[Counter], monkeypatch: pytest.MonkeyPatch) -> list[Counter]:
    monkeypatch.setattr(f"{__name__}.Counter", InBackground)
    return trainers


async def test_a_checkpoint_in_the_background_counts_once_it_is_whole(
    workplace: Any, finish: Finish, in_background: list[Any], bench: Any
) -> None:
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    assert checkpoints(run) == ["00000", "00001", "00002"]
    assert in_background[0].left == [[".00000.partial"], [".00001.partial", "00000"]]
    reported = [event["step"] for event in run.store.reader.events() if "metrics" in event]
    assert reported == [0, 1, 2]
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert (in_background[1].seen, in_background[1].total) == ([], 6)


async def test_a_step_whose_checkpoint_was_not_written_is_trained_again_and_reported_once(
    workplace: Any, finish: Finish, in_background: list[Any], bench: Any
) -> None:
    async def killed(self: Any, batch: Batch) -> StepReport:
        if batch.step == 2:
            self.trained.set()
            raise Killed
        return await InBackground.step(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.Counter", type("Dies", (InBackground,), {"step": killed}))
        run = workplace.prepared(trained(workplace, n=2, steps=3))
        with pytest.raises(BaseExceptionGroup):
            await finish(run)
    assert checkpoints(run) == [".00001.partial", "00000"]
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert [step for step, _ in in_background[-1].seen] == [1, 2]
    assert in_background[-1].total == 6
    reported = [event["step"] for event in again.store.reader.events() if "metrics" in event]
    assert reported == [0, 1, 2]


@pytest.mark.parametrize("error", [AleError("no more"), asyncio.CancelledError()])
async def test_a_run_that_fails_keeps_the_checkpoint_that_is_being_written(
    workplace: Any,
    finish: Finish,
    in_background: list[Any],
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    async def fails(self: Any, batch: Batch) -> StepReport:
        if batch.step == 2:
            self.trained.set()
            raise error
        return await InBackground.step(self, batch)

    monkeypatch.setattr(f"{__name__}.Counter", type("Fails", (InBackground,), {"step": fails}))
    run = workplace.prepared(trained(workplace, n=2, steps=3))
    with pytest.raises(type(error)):
        await finish(run)
    assert checkpoints(run) == ["00000", "00001"]


async def test_a_checkpoint_that_is_being_written_is_loaded_once_it_is_whole(
    workplace: Any,
    in_background: list[Any],
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learn = training.Training.learn

    async def learn_and_load(self: training.Training, step: int, facts: Any) -> None:
        await learn(self, step, facts)
        in_background[0].trained.set()
        await self.load(self.store.checkpoints.folder(step))

    monkeypatch.setattr(training.Training, "learn", learn_and_load)
    run = await workplace.ran(trained(workplace, n=2, steps=3))
    assert checkpoints(run) == ["00000", "00001", "00002"]
