"""The kit for trainers finds what is wrong with these."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ale.errors import AleError, InputError, StoreError
from ale.protocols import LLM, Trainer
from ale.testing.trainer import (
    CriticTrainerContract,
    TrainerContract,
    batch_for_critic,
    credited_batch,
)
from ale.types import Batch, Gae, PolicySnapshot, StepReport


class Momentum:
    """A trainer of one number with an optimizer state; each version in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.value, self.velocity, self.version = 1.0, 0.0, 0
        self.write()

    def write(self) -> None:
        target = self.folder / f"v{self.version}"
        target.mkdir(parents=True, exist_ok=True)
        (target / "weights.json").write_text(json.dumps(self.value))

    def attach(self, llm: LLM | None) -> None:
        pass

    def gradient(self, batch: Batch) -> float:
        weights = [w for g in batch.groups for c in g.credits for w in c.weights]
        return sum(weights) / max(1, len(weights)) + 0.1 * self.value * bool(weights)

    async def step(self, batch: Batch) -> StepReport:
        self.velocity = 0.9 * self.velocity + self.gradient(batch)
        self.value -= 0.1 * self.velocity
        self.version += 1
        self.write()
        return StepReport(
            step=batch.step,
            policy_version=self.version,
            metrics={"value": self.value, "speed": abs(self.velocity)},
        )

    def snapshot(self) -> PolicySnapshot:
        return PolicySnapshot(version=self.version, path=str(self.folder / f"v{self.version}"))

    def save(self, directory: Path) -> None:
        state = [self.value, self.velocity, self.version]
        (directory / "state.json").write_text(json.dumps(state))

    def load(self, directory: Path) -> None:
        try:
            state = json.loads((directory / "state.json").read_text())
            self.value, self.velocity, self.version = state
        except (OSError, ValueError) as error:
            raise StoreError(f"{directory}: {error}") from error


class TestMomentum(TrainerContract):
    @pytest.fixture
    def make_trainer(self, tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: Momentum(tmp_path / "policy")


kit = TrainerContract()


def test_the_kit_finds_a_refusal_that_says_nothing(tmp_path: Path) -> None:
    class Gruff(Momentum):
        def attach(self, llm: LLM | None) -> None:
            raise InputError([])

    with pytest.raises(AssertionError):
        kit.test_a_model_is_taken_or_refused_with_the_reason(lambda: Gruff(tmp_path), None)


async def test_the_kit_finds_a_metric_that_is_nan_on_zero_weights(tmp_path: Path) -> None:
    class Normalising(Momentum):
        def gradient(self, batch: Batch) -> float:
            weights = [w for g in batch.groups for c in g.credits for w in c.weights]
            largest = max(map(abs, weights))
            return math.nan if largest == 0 else sum(weights) / largest

    with pytest.raises(AssertionError):
        await kit.test_a_batch_whose_weights_are_all_zero_gives_finite_metrics(
            Normalising(tmp_path), credited_batch
        )


async def test_the_kit_finds_a_step_that_can_not_be_empty(tmp_path: Path) -> None:
    class Mean(Momentum):
        def gradient(self, batch: Batch) -> float:
            weights = [w for g in batch.groups for c in g.credits for w in c.weights]
            return sum(weights) / len(weights)

    with pytest.raises(ZeroDivisionError):
        await kit.test_an_empty_batch_is_a_step_like_any_other(Mean(tmp_path))


async def test_the_kit_finds_an_optimizer_state_that_is_not_saved(tmp_path: Path) -> None:
    class Forgetful(Momentum):
        def save(self, directory: Path) -> None:
            (directory / "state.json").write_text(json.dumps([self.value, 0.0, self.version]))

    with pytest.raises(AssertionError):
        await kit.test_a_restarted_trainer_continues_from_its_checkpoint(
            lambda: Forgetful(tmp_path), credited_batch, tmp_path
        )


async def test_the_kit_finds_a_load_that_leaves_the_old_state(tmp_path: Path) -> None:
    class Lazy(Momentum):
        def load(self, directory: Path) -> None:
            if self.version == 0:
                super().load(directory)

    with pytest.raises(AssertionError):
        await kit.test_loading_takes_a_trainer_back(Lazy(tmp_path), credited_batch, tmp_path)


async def test_the_kit_finds_weights_that_are_changed_in_place(tmp_path: Path) -> None:
    class InPlace(Momentum):
        def write(self) -> None:
            (self.folder / "weights.json").write_text(json.dumps(self.value))

        def snapshot(self) -> PolicySnapshot:
            return PolicySnapshot(version=self.version, path=str(self.folder))

    with pytest.raises(AssertionError):
        await kit.test_a_step_leaves_earlier_snapshots_as_they_were(
            InPlace(tmp_path), credited_batch
        )


async def test_the_kit_finds_new_weights_under_an_old_version(tmp_path: Path) -> None:
    class Unnumbered(Momentum):
        def snapshot(self) -> PolicySnapshot:
            return PolicySnapshot(version=0, path=str(self.folder / f"v{self.version}"))

    with pytest.raises(AssertionError, match="one version, two contents"):
        await kit.test_a_step_leaves_earlier_snapshots_as_they_were(
            Unnumbered(tmp_path), credited_batch
        )


async def test_the_kit_finds_a_report_of_another_version(tmp_path: Path) -> None:
    class Early(Momentum):
        def snapshot(self) -> PolicySnapshot:
            return PolicySnapshot(version=max(0, self.version - 1))

    with pytest.raises(AssertionError):
        await kit.test_a_report_names_the_version_that_the_snapshot_has(
            Early(tmp_path), credited_batch
        )


async def test_the_kit_finds_a_report_under_another_step(tmp_path: Path) -> None:
    class Counting(Momentum):
        async def step(self, batch: Batch) -> StepReport:
            report = await super().step(batch)
            return StepReport(step=self.version, policy_version=1, metrics=report.metrics)

    with pytest.raises(AssertionError):
        await kit.test_a_step_reports_finite_metrics_under_its_own_number(
            Counting(tmp_path), credited_batch
        )


def test_the_kit_finds_a_foreign_folder_that_is_taken_for_a_checkpoint(tmp_path: Path) -> None:
    class Trusting(Momentum):
        def load(self, directory: Path) -> None:
            if (directory / "state.json").exists():
                super().load(directory)

    for what in ("missing", "empty", "foreign"):
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            kit.test_a_folder_that_is_no_checkpoint_is_a_store_error(
                Trusting(tmp_path / "policy"), what, tmp_path
            )


async def test_the_kit_finds_a_damaged_checkpoint_that_raises_what_it_likes(
    tmp_path: Path,
) -> None:
    class Raw(Momentum):
        def load(self, directory: Path) -> None:
            self.value, self.velocity, self.version = json.loads(
                (directory / "state.json").read_text()
            )

    with pytest.raises(json.JSONDecodeError):
        await kit.test_a_damaged_checkpoint_is_a_store_error(
            lambda: Raw(tmp_path), credited_batch, tmp_path
        )


class WithCritic(Momentum):
    """Its critic is one number, too: what it expects of every state."""

    has_critic = True
    expected = 0.0

    def gradient(self, batch: Batch) -> float:
        credits = [credit for each in batch.groups for credit in each.credits]
        for credit in credits:
            if credit.gae is None:
                raise AleError(f"the credit of {credit.episode_id} was not made for a critic")
        surprises = [sum(credit.rewards) - self.expected for credit in credits]
        mean = sum(surprises) / max(1, len(surprises))
        self.expected += 0.1 * mean
        return mean

    def save(self, directory: Path) -> None:
        super().save(directory)
        (directory / "critic.json").write_text(json.dumps(self.expected))

    def load(self, directory: Path) -> None:
        super().load(directory)
        try:
            self.expected = json.loads((directory / "critic.json").read_text())
        except (OSError, ValueError) as error:
            raise StoreError(f"{directory}: {error}") from error


class TestWithCritic(CriticTrainerContract):
    @pytest.fixture
    def make_trainer(self, tmp_path: Path) -> Callable[[], Trainer]:
        return lambda: WithCritic(tmp_path / "policy")


critic_kit = CriticTrainerContract()


def for_critic(step: int) -> Batch:
    return batch_for_critic(step, Gae(gamma=0.9, lam=0.95, unit="chunk"))


def test_the_kit_finds_a_critic_that_is_not_declared(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        critic_kit.test_it_declares_its_critic(lambda: Momentum(tmp_path))


async def test_the_kit_finds_a_critic_that_takes_other_credit(tmp_path: Path) -> None:
    class Indifferent(WithCritic):
        def gradient(self, batch: Batch) -> float:
            return Momentum.gradient(self, batch)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await critic_kit.test_credit_that_was_not_made_for_a_critic_is_refused(
            Indifferent(tmp_path)
        )
    with pytest.raises(AssertionError):
        await critic_kit.test_weights_that_the_critic_replaces_change_nothing(
            lambda: Indifferent(tmp_path), for_critic
        )


async def test_the_kit_finds_a_critic_that_is_not_in_the_checkpoint(tmp_path: Path) -> None:
    class Forgetful(WithCritic):
        def load(self, directory: Path) -> None:
            Momentum.load(self, directory)

    with pytest.raises(AssertionError):
        await kit.test_a_restarted_trainer_continues_from_its_checkpoint(
            lambda: Forgetful(tmp_path), for_critic, tmp_path
        )
