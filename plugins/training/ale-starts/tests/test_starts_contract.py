"""Every scheme, with every kind of expert, keeps the contract of start schemes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale._store import Redactor, RunDirectory
from ale.plugin import BuildContext
from ale.protocols import StartScheme
from ale.testing.builders import task
from ale.testing.starts import StartSchemeContract, rolled_out, solved
from ale.types import Task
from ale_starts.build import initial, parallel, rollback
from ale_starts.options import InitialOptions, ParallelOptions, RollbackOptions
from ale_starts.schemes import start_at

Make = Callable[[], StartScheme]


class TestInitial(StartSchemeContract):
    @pytest.fixture
    def make_scheme(self) -> Make:
        return lambda: initial(InitialOptions(), BuildContext())


class TestDemonstrations(StartSchemeContract):
    @pytest.fixture
    def make_scheme(self) -> Make:
        return lambda: initial(InitialOptions(demonstrations=3), BuildContext())


class TestTheSameDemonstrationsAgain(StartSchemeContract):
    @pytest.fixture
    def make_scheme(self) -> Make:
        options = InitialOptions(demonstrations=3, after="same-demonstrations")
        return lambda: initial(options, BuildContext())


EXPERTS: list[dict[str, Any]] = [
    {},
    {"demonstrations": 2, "expert": "own"},
    {"expert": "own", "fallback_expert": "initial", "prefer": "newest"},
]


class TestRollback(StartSchemeContract):
    @pytest.fixture(params=EXPERTS, ids=str)
    def make_scheme(self, request: pytest.FixtureRequest) -> Make:
        options = RollbackOptions(min_rollouts=6, forward=True, **request.param)
        return lambda: rollback(options, BuildContext(seed=7))


class TestParallel(StartSchemeContract):
    @pytest.fixture(params=EXPERTS, ids=str)
    def make_scheme(self, request: pytest.FixtureRequest) -> Make:
        options = ParallelOptions(anchors=3, **request.param)
        return lambda: parallel(options, BuildContext(seed=7))


class TestAStoredRunsEpisodes(StartSchemeContract):
    @pytest.fixture
    def tasks(self) -> Sequence[Task]:
        return [*solved(3), task("never-solved")]

    @pytest.fixture
    def make_scheme(self, tmp_path: Path, tasks: Sequence[Task]) -> Make:
        store = RunDirectory.create(tmp_path / "before", MANIFEST, Redactor({}))
        for number, known in enumerate(tasks[:3]):
            begun = start_at(known, 1, 0, None)
            for rollout, reward in enumerate((0.0, 1.0)):
                turns = number + 1
                store.add_episode(
                    rolled_out(begun, step=0, rollout=rollout, reward=reward, turns=turns)
                )
        store.close()
        options = RollbackOptions(
            expert="episodes",
            expert_run=tmp_path / "before",
            min_rollouts=6,
            missing="initial",
        )
        return lambda: rollback(options, BuildContext())


MANIFEST = {
    "run_id": "before",
    "n_tasks": 3,
    "config": {"chunker": {"type": "interaction"}},
}
