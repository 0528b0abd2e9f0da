"""A run that samples and trains on Tinker: the SDK over a service at loopback."""

from collections.abc import Iterator
from typing import Any

import pytest

# Starting torch takes long where the machine is busy.
PATIENCE_S = 900.0

pytestmark = pytest.mark.needs("tinker", "torch", "transformers", "ale_trainer_policy")


CREDIT = """
import ale

@ale.credit("plain")
def plain(group: ale.Group) -> list[list[float]]:
    \"\"\"The more for a chunk, the later it is, whatever the reward.\"\"\"
    return [[1.0 + each.index for each in rollout.chunks] for rollout in group.rollouts]
"""


@pytest.fixture
def service() -> Iterator[Any]:
    from ale_tinker.testing import loopback

    with loopback() as started:
        started.base[:, -1] += 3  # answers end after some twenty tokens
        yield started


def test_a_run_trains_at_the_service_and_resumes(workshop: Any, service: Any) -> None:
    from ale_tinker.testing import KEY, write_tokenizer

    write_tokenizer(workshop.folder / "tokenizer")
    (workshop.folder / "plain.py").write_text(CREDIT)
    workshop.task("first", check="test -e apple")
    workshop.config(
        llm={
            "type": "tinker",
            "model": "base",
            "tokenizer": "./tokenizer",
            "chat_template": "chatml",
            "base_url": service.url,
            "max_tokens": 400,
        },
        agent={"type": "iflow", "max_turns": 1, "finish": "text"},
        plugins=["plain.py"],
        credit={"type": "plain"},
        trainer={"type": "tinker", "objective": "ipa", "lr": 0.01, "rank": 4},
        run={"steps": 2, "tasks_per_step": 1, "rollouts": 2},
    )
    environ = {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
    workshop.succeeds("run", "run.yaml", timeout_s=PATIENCE_S, **environ)

    finished = [
        line
        for line in workshop.lines("events.jsonl", workshop.run)
        if line["event"] == "step_finished"
    ]
    assert [line["metrics"]["updates"] for line in finished] == [1, 1]
    losses = [request.loss_fn for request in service.asked("forward_backward")]
    assert losses == ["cross_entropy"] * 4, "a forward pass, and one with the objective's gradient"
    versions = {
        name: {
            version
            for turn in episode["trajectory"]["turns"]
            for version in turn["completion"]["tokens"]["policy_versions"]
        }
        for name, episode in workshop.episodes(workshop.run).items()
    }
    assert sorted(map(tuple, versions.values())) == [(0,), (0,), (1,), (1,)]

    more = ("--resume", str(workshop.run), "--set", "run.steps=3")
    workshop.succeeds("run", *more, timeout_s=PATIENCE_S, **environ)
    (loaded,) = service.asked("load_weights")
    assert (
        loaded.path == "tinker://session-1:train:0/weights/" + service.asked("save_weights")[1].path
    )
    assert len(service.gradients) == 3
