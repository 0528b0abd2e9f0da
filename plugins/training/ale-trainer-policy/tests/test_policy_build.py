"""What can't be trained is refused where the trainer is built: before the run."""

from typing import Any

import pytest
from attrs import evolve

from ale.errors import InputError
from ale.plugin import BuildContext
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.options import PolicyOptions


def test_too_few_stored_versions_for_the_staleness_are_refused_before_the_run() -> None:
    options = PolicyOptions(old_policy="rollout_version", sync="copy")
    with pytest.raises(InputError) as caught:
        policy_trainer(options, BuildContext(staleness=4))
    (problem,) = caught.value.problems
    assert problem.path == "trainer.keep_versions"
    assert problem.expected == "at least 5"
    assert "run.staleness is 4" in problem.message
    assert "4 are stored" in problem.message
    policy_trainer(options, BuildContext(staleness=3))
    policy_trainer(evolve(options, keep_versions=5), BuildContext(staleness=4))


def test_staleness_without_a_chosen_old_policy_is_refused() -> None:
    options = PolicyOptions(sync="copy")
    with pytest.raises(InputError) as caught:
        policy_trainer(options, BuildContext(staleness=2))
    (problem,) = caught.value.problems
    assert problem.path == "trainer.old_policy"
    assert "no objective's importance ratio corrects for staleness" in problem.message
    assert problem.expected == "rollout_version, with keep_versions at least 3, or rollout_engine"
    policy_trainer(options, BuildContext())


@pytest.mark.parametrize(
    ("old_policy", "staleness", "warnings"),
    [("recompute", 1, 1), ("recompute", 0, 0), ("rollout_version", 1, 0), ("rollout_engine", 1, 0)],
)
def test_staleness_with_an_explicit_recompute_is_a_warning(
    old_policy: Any, staleness: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    options = PolicyOptions(sync="copy", old_policy=old_policy)
    policy_trainer(options, BuildContext(staleness=staleness))
    assert caplog.text.count("no objective's importance ratio corrects for staleness") == warnings


def test_all_problems_with_staleness_are_reported_at_once() -> None:
    options = PolicyOptions(old_policy="rollout_version", sync="same", keep_versions=1)
    with pytest.raises(InputError) as caught:
        policy_trainer(options, BuildContext(staleness=1))
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["trainer.sync", "trainer.keep_versions"]
