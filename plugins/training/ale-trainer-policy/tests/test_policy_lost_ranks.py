"""A rank of the trainer that fails or is killed."""

import os
import signal
from typing import Any

import pytest

from ale.errors import AleError, LostProcessError
from ale.plugin import BuildContext
from ale_trainer_policy import ranks
from ale_trainer_policy.build import policy_trainer
from ale_trainer_policy.options import PolicyOptions


@pytest.mark.parametrize("killed", [False, True])
async def test_a_rank_that_ends_is_reported_with_its_cause(lab: Any, killed: bool) -> None:
    trainer = policy_trainer(PolicyOptions(sync="copy", processes=2), BuildContext())
    trainer.attach(lab.InProcessLLM(lab.tiny_model()))
    (worker,) = trainer._learner._own._workers
    if killed:
        os.kill(worker.pid, signal.SIGKILL)
        expected, kind = "rank 1 of the trainer was killed by SIGKILL", LostProcessError
    else:
        ranks.broadcast_call("mistake")
        expected = r"rank 1 .* exit code 1: 'ShardedLearner' object has no attribute 'mistake'"
        kind = AleError
    with pytest.raises(AleError, match=expected) as raised:
        await trainer.step(lab.batch_of(lab.random_group(0)))
    assert type(raised.value) is kind
    trainer._learner.close()
    assert worker.exitcode is not None
