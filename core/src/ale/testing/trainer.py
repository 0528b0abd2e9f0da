"""Contract kit for trainers: finite reports, immutable snapshots, and resuming from checkpoints.

```python
class TestMine(TrainerContract):
    @pytest.fixture
    def make_trainer(self, tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: Mine(MineOptions(), directory=tmp_path)
```

`CriticTrainerContract` is for trainers with a critic, in the same way, and
`BackgroundSaverContract` for those that write checkpoints while the run continues.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pytest

from ale.errors import AleError, InputError, StoreError
from ale.protocols import LLM, BackgroundSaver, CriticTrainer, Trainer
from ale.testing._marks import async_tests
from ale.testing.builders import episode, group, turn
from ale.testing.fakes import FakeChunker, FakeLLM
from ale.types import (
    Batch,
    Credit,
    CreditedGroup,
    Gae,
    Message,
    PolicySnapshot,
    StepReport,
    Turn,
    replace,
)

TEXT = "I will look at it."


def _turns(n: int) -> Sequence[Turn]:
    """Turns of one call and six tokens each; the first one has the task's messages."""
    messages = (Message(role="system", content="You work."), Message(role="user", content="Do it."))
    return [
        turn(
            TEXT,
            calls=[("bash", '{"command": "ls"}')],
            tokens=6,
            fresh_context=i == 0,
            prompt=messages if i == 0 else (),
        )
        for i in range(n)
    ]


def credited_group(
    task_id: str, rollouts: Sequence[tuple[float, Sequence[float]]], *, step: int = 0
) -> CreditedGroup:
    """Rollouts of one task, each given as (reward, weight of each chunk), with one turn per chunk.

    Every turn has six tokens, and a chunk is a turn.
    """
    episodes = [
        episode(
            reward,
            *_turns(len(weights)),
            task_id=task_id,
            rollout=number,
            episode_id=f"{step}-{task_id}-{number}",
        )
        for number, (reward, weights) in enumerate(rollouts)
    ]
    credits = tuple(
        Credit(
            episode_id=made.id,
            scheme="demo",
            rewards=(*[0.0] * (len(weights) - 1), reward),
            returns=(reward,) * len(weights),
            weights=tuple(weights),
        )
        for made, (reward, weights) in zip(episodes, rollouts, strict=True)
    )
    pairs = [(made, FakeChunker().split(made.trajectory)) for made in episodes]
    return CreditedGroup(group=group(*pairs), credits=credits)


def credited_batch(step: int) -> Batch:
    """Two tasks: one with a success and a failure, one whose rollouts all failed (weights 0)."""
    mixed = credited_group("mixed", [(1.0, (0.25, 0.5, 1.0)), (0.0, (-0.5, -1.0))], step=step)
    failed = credited_group("failed", [(0.0, (0.0,)), (0.0, (0.0, 0.0))], step=step)
    return Batch(step=step, groups=(mixed, failed))


def _with_credits(batch: Batch, change: Callable[[Credit], Credit]) -> Batch:
    """The same batch, with each of its credits changed."""
    groups = [replace(each, credits=tuple(map(change, each.credits))) for each in batch.groups]
    return replace(batch, groups=tuple(groups))


def without_credit(batch: Batch) -> Batch:
    """The same batch, with all weights, returns and rewards of its credits set to 0."""

    def zeroed(credit: Credit) -> Credit:
        zeros = (0.0,) * len(credit.weights)
        return replace(credit, rewards=zeros, returns=zeros, weights=zeros)

    return _with_credits(batch, zeroed)


def batch_for_critic(step: int, gae: Gae) -> Batch:
    """`credited_batch`, with credit that a critic is to complete."""
    return _with_credits(credited_batch(step), lambda credit: replace(credit, gae=gae))


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint"
    folder.mkdir()
    return folder


def _content(snapshot: PolicySnapshot) -> dict[str, str]:
    """Digest of each file of a snapshot."""
    if snapshot.path is None:
        return {}
    files = sorted(path for path in Path(snapshot.path).rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _assert_finite(report: StepReport) -> None:
    wrong = {name: value for name, value in report.metrics.items() if not math.isfinite(value)}
    assert wrong == {}
    assert all(isinstance(name, str) and name for name in report.metrics)


class _TrainerKit:
    """The common part of the kits of trainers."""

    tolerance = 1e-6
    """Relative difference allowed between metrics of the same step: kernels need not be exact."""
    timings: Sequence[str] = ()
    """Metrics that are measured, not computed, and therefore differ each time."""

    @pytest.fixture
    def make_trainer(self) -> Callable[[], Trainer]:
        """Builds a fresh trainer each time it is called, as a restarted run would.

        A trainer of a model is attached to a fresh model, with the model's initial weights.
        """
        raise NotImplementedError("override the fixture `make_trainer`")

    @pytest.fixture
    def batch(self) -> Callable[[int], Batch]:
        """Makes the batch of a step."""
        return credited_batch

    def _computed(self, report: StepReport) -> dict[str, float]:
        return {k: v for k, v in report.metrics.items() if k not in self.timings}

    async def _assert_repeats(self, trainer: Trainer, batch: Batch, expected: StepReport) -> None:
        """Check that the trainer's next step has this report."""
        again = await trainer.step(batch)
        assert (again.step, again.policy_version) == (expected.step, expected.policy_version)
        assert self._computed(again) == pytest.approx(self._computed(expected), rel=self.tolerance)


@async_tests
class TrainerContract(_TrainerKit):
    """Derive from it and give it `make_trainer`, and `batch` if `credited_batch` won't do."""

    @pytest.fixture
    def make_unattached(self, make_trainer: Callable[[], Trainer]) -> Callable[[], Trainer]:
        """As `make_trainer`, before `attach`; override it if `make_trainer` attaches."""
        return make_trainer

    @pytest.fixture
    def trainer(self, make_trainer: Callable[[], Trainer]) -> Trainer:
        return make_trainer()

    @pytest.mark.parametrize("llm", [None, FakeLLM([])], ids=["no-model", "no-token-ids"])
    def test_a_model_is_taken_or_refused_with_the_reason(
        self, make_unattached: Callable[[], Trainer], llm: LLM | None
    ) -> None:
        try:
            make_unattached().attach(llm)
        except InputError as error:
            refused: InputError | None = error
        else:
            refused = None
        assert refused is None or refused.problems
        for problem in refused.problems if refused else ():
            assert problem.path, "a problem names its place in the config"
            assert problem.message
            assert problem.expected, "and says which model would do"

    async def test_a_step_reports_finite_metrics_under_its_own_number(
        self, trainer: Trainer, batch: Callable[[int], Batch]
    ) -> None:
        report = await trainer.step(batch(3))
        assert report.step == 3
        assert report.metrics, "a report needs metrics"
        _assert_finite(report)

    async def test_a_report_names_the_version_that_the_snapshot_has(
        self, trainer: Trainer, batch: Callable[[int], Batch]
    ) -> None:
        versions = [trainer.snapshot().version]
        for step in range(2):
            report = await trainer.step(batch(step))
            versions.append(trainer.snapshot().version)
            assert report.policy_version == versions[-1]
        assert versions == sorted(versions), "versions only grow"

    async def test_a_snapshot_is_the_same_until_the_next_step(self, trainer: Trainer) -> None:
        first, second = trainer.snapshot(), trainer.snapshot()
        assert first == second
        assert _content(first) == _content(second)

    async def test_a_step_leaves_earlier_snapshots_as_they_were(
        self, trainer: Trainer, batch: Callable[[int], Batch]
    ) -> None:
        before = trainer.snapshot()
        text, content = repr(before), _content(before)
        await trainer.step(batch(0))
        after = trainer.snapshot()
        assert repr(before) == text
        assert _content(before) == content
        changed = after.path != before.path or _content(after) != content
        assert after.version != before.version or not changed, "one version, two contents"

    async def test_a_restarted_trainer_continues_from_its_checkpoint(
        self,
        make_trainer: Callable[[], Trainer],
        batch: Callable[[int], Batch],
        tmp_path: Path,
    ) -> None:
        first = make_trainer()
        await first.step(batch(0))
        checkpoint = _folder(tmp_path)
        first.save(checkpoint)
        expected = await first.step(batch(1))

        second = make_trainer()
        second.load(checkpoint)
        await self._assert_repeats(second, batch(1), expected)

    async def test_loading_takes_a_trainer_back(
        self, trainer: Trainer, batch: Callable[[int], Batch], tmp_path: Path
    ) -> None:
        await trainer.step(batch(0))
        saved = trainer.snapshot().version
        checkpoint = _folder(tmp_path)
        trainer.save(checkpoint)
        expected = await trainer.step(batch(1))
        trainer.load(checkpoint)
        assert trainer.snapshot().version == saved
        await self._assert_repeats(trainer, batch(1), expected)

    async def test_an_empty_batch_is_a_step_like_any_other(self, trainer: Trainer) -> None:
        report = await trainer.step(Batch(step=5, groups=()))
        assert report.step == 5
        assert report.policy_version == trainer.snapshot().version
        _assert_finite(report)

    async def test_a_batch_whose_weights_are_all_zero_gives_finite_metrics(
        self, trainer: Trainer, batch: Callable[[int], Batch]
    ) -> None:
        _assert_finite(await trainer.step(without_credit(batch(0))))
        _assert_finite(await trainer.step(batch(1)))

    @pytest.mark.parametrize("what", ["missing", "empty", "foreign"])
    def test_a_folder_that_is_no_checkpoint_is_a_store_error(
        self, trainer: Trainer, what: str, tmp_path: Path
    ) -> None:
        folder = tmp_path / what
        if what != "missing":
            folder.mkdir()
        if what == "foreign":
            (folder / "notes.txt").write_text("not a checkpoint")
        with pytest.raises(StoreError):
            trainer.load(folder)

    async def test_a_damaged_checkpoint_is_a_store_error(
        self,
        make_trainer: Callable[[], Trainer],
        batch: Callable[[int], Batch],
        tmp_path: Path,
    ) -> None:
        trainer = make_trainer()
        await trainer.step(batch(0))
        checkpoint = _folder(tmp_path)
        trainer.save(checkpoint)
        files = [path for path in checkpoint.rglob("*") if path.is_file()]
        assert files, "a checkpoint is at least one file"
        for path in files:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(StoreError):
            make_trainer().load(checkpoint)


@async_tests
class BackgroundSaverContract(_TrainerKit):
    """For trainers that write checkpoints while the run continues (`BackgroundSaver`).

    Give it `make_trainer`, as for `TrainerContract`, and `batch` if `credited_batch` won't do.
    """

    async def test_what_is_trained_meanwhile_is_not_in_the_checkpoint(
        self,
        make_trainer: Callable[[], Trainer],
        batch: Callable[[int], Batch],
        tmp_path: Path,
    ) -> None:
        first = make_trainer()
        await first.step(batch(0))
        assert isinstance(first, BackgroundSaver)
        checkpoint = _folder(tmp_path)
        finish = first.start_saving(checkpoint)
        expected = await first.step(batch(1))
        if finish is not None:
            finish()

        second = make_trainer()
        second.load(checkpoint)
        await self._assert_repeats(second, batch(1), expected)


@async_tests
class CriticTrainerContract(TrainerContract):
    """For trainers with a critic (`CriticTrainer`): `TrainerContract` on credit to be completed.

    The tests of `TrainerContract` include that a run resumes with the critic as it was.
    """

    @pytest.fixture
    def batch(self) -> Callable[[int], Batch]:
        """Makes the batch of a step."""
        gae = Gae(gamma=0.9, lam=0.95, unit="chunk")
        return lambda step: batch_for_critic(step, gae)

    def test_it_declares_its_critic(self, make_unattached: Callable[[], Trainer]) -> None:
        trainer = make_unattached()
        assert isinstance(trainer, CriticTrainer)
        assert trainer.has_critic

    @pytest.mark.parametrize("truncated", [False, True], ids=["ended", "cut-off"])
    @pytest.mark.parametrize("unit", ["token", "turn", "chunk"])
    async def test_every_unit_is_completed(
        self, trainer: Trainer, unit: Literal["token", "turn", "chunk"], truncated: bool
    ) -> None:
        gae = Gae(gamma=0.9, lam=0.95, unit=unit, truncated=truncated)
        for step in range(2):
            report = await trainer.step(batch_for_critic(step, gae))
            _assert_finite(report)

    async def test_credit_that_was_not_made_for_a_critic_is_refused(self, trainer: Trainer) -> None:
        with pytest.raises(AleError, match=credited_batch(0).groups[0].credits[0].episode_id):
            await trainer.step(credited_batch(0))

    async def test_weights_that_the_critic_replaces_change_nothing(
        self, make_trainer: Callable[[], Trainer], batch: Callable[[int], Batch]
    ) -> None:
        """`Credit.weights` assume that every state is worth 0; rewards and values decide."""
        reports = []
        other = _with_credits(
            batch(0), lambda credit: replace(credit, weights=(7.0,) * len(credit.weights))
        )
        for made in (batch(0), other):
            trainer = make_trainer()
            await trainer.step(made)
            reports.append(self._computed(await trainer.step(batch(1))))
        assert reports[1] == pytest.approx(reports[0], rel=self.tolerance)
