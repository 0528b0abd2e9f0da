"""`schedule: stream` with a policy that is sampled and trained."""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch")

KEPT = ("loss", "grad_norm", "entropy", "tokens_trained", "mean_return")


@pytest.fixture
def config(workshop: Any) -> str:
    """Every answer fails, and failures count: each step makes an update."""
    for number in range(4):
        workshop.task(f"t{number}")
    workshop.write("corpus.txt", "Do t0. Do t1. Do t2. Do t3. done\n" * 20)
    tiny = {"corpus": "corpus.txt", "layers": 2, "width": 64, "heads": 2, "mlp": 128}
    workshop.config(
        agent={"type": "single-shot"},
        llm={"type": "policy", "tiny": tiny, "max_tokens": 8},
        credit={"type": "ipa", "failure_reward": -0.5},
        trainer={"type": "policy", "lr": 1e-2, "sync": "copy", "correction": "truncate"},
        run={"steps": 4, "tasks_per_step": 2, "rollouts": 3, "concurrency": 8},
    )
    return "run.yaml"


def trained(workshop: Any, config: str, *given: str) -> tuple[Path, list[dict[str, Any]]]:
    """A run with these options, and the metrics of its steps."""
    workshop.succeeds("run", config, *(f"--set=run.{each}" for each in given))
    run = workshop.runs[-1]
    events = workshop.lines("events.jsonl", run)
    return run, [line["metrics"] for line in events if line["event"] == "step_finished"]


def tokens(workshop: Any, run: Path) -> dict[str, Any]:
    """Of each episode: ids, their log-probabilities and versions."""
    episodes = workshop.episodes(run).items()
    return {
        name: [turn["completion"]["tokens"] for turn in episode["trajectory"]["turns"]]
        for name, episode in episodes
    }


def test_without_staleness_a_stream_trains_the_same_weights_to_the_bit(
    workshop: Any, config: str
) -> None:
    found = []
    for schedule in ("steps", "stream"):
        run, metrics = trained(workshop, config, f"schedule={schedule}")
        learned = [{name: of_step[name] for name in KEPT} for of_step in metrics]
        found.append((tokens(workshop, run), learned))
    assert found[0] == found[1]
    sampled, learned = found[0]
    versions = {v for turns in sampled.values() for turn in turns for v in turn["policy_versions"]}
    assert versions == {0, 1, 2, 3}, "what was learned is sampled from"
    assert all(of_step["grad_norm"] > 0 for of_step in learned)


def test_a_stream_learns_from_older_versions_and_says_how_old(workshop: Any, config: str) -> None:
    run, metrics = trained(workshop, config, "schedule=stream", "staleness=2", "steps=6")
    sampled = tokens(workshop, run)
    behind = []
    for step, of_step in enumerate(metrics):
        rows = workshop.lines(f"credits/{step:05d}.jsonl", run)
        assert len(rows) == 6
        versions = {
            version
            for row in rows
            for turn in sampled[row["episode_id"]]
            for version in turn["policy_versions"]
        }
        assert step - min(versions) <= of_step["staleness_max"]
        behind.append(step - min(versions))
        assert 0 <= of_step["trainer_waiting_share"] <= 1
        assert 0 <= of_step["rollouts_waiting_share"] <= 1
    assert max(behind) >= 1, "it sampled while it trained"
