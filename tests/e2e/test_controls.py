"""A claim of learning beside its controls: real shells, a real policy, one start for all arms."""

import csv
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch")

KINDS = ["write", "copy"]


@pytest.fixture
def config(workshop: Any) -> str:
    from ale_tasks_shell import corpus

    text = "".join(dict.fromkeys(corpus(0, 200, length=(1, 1), kinds=tuple(KINDS))))
    workshop.write("corpus.txt", text)
    tasks = {"type": "shell", "length": 1, "kinds": KINDS}
    held_out = {**tasks, "seed": 2, "count": 3, "split": "held_out_parameters"}
    workshop.config(
        tasks={**tasks, "seed": 1, "count": 64},
        llm={
            "type": "policy",
            "tiny": {"corpus": "corpus.txt", "layers": 1, "width": 64, "heads": 2, "mlp": 128},
            "max_tokens": 24,
        },
        agent={"type": "iflow", "system_prompt": "", "max_turns": 2},
        credit={"type": "ipa", "failure_reward": -0.2},
        starts={"type": "initial", "demonstrations": 2},
        trainer={"type": "policy", "lr": 3e-3, "imitation": {"when": "always", "weight": 1.0}},
        evaluation={"tasks": held_out, "every": 10, "rollouts": 2},
        run={"steps": 3, "tasks_per_step": 3, "rollouts": 2, "concurrency": 4},
    )
    return "run.yaml"


def runs(workshop: Any) -> dict[str, Path]:
    (grid,) = (workshop.folder / "runs").glob("*-ablate-*")
    paths = sorted(path.parent for path in grid.glob("cells/*/seed-0/*/manifest.json"))
    return {path.parts[-3][3:]: path for path in paths}


def test_controls_share_the_start_of_the_arm_and_differ_in_one_thing(
    workshop: Any, config: str
) -> None:
    done = workshop.succeeds("ablate", config, "--controls", "--seeds", "1")
    found = runs(workshop)
    assert {*found} == {"as-written", "reward-blind", "imitation", "frozen"}

    def weights(arm: str, step: int) -> bytes:
        return (found[arm] / "checkpoints" / f"{step:05d}" / "trainer.safetensors").read_bytes()

    others = ("reward-blind", "imitation", "frozen")
    assert all(weights(arm, 1) == weights("as-written", 1) for arm in others)
    assert weights("reward-blind", 2) != weights("frozen", 1)
    assert not (found["frozen"] / "checkpoints" / "00002").exists()
    # The same tasks in the step after, and for imitation those that were demonstrated before.
    of_step = {
        arm: {e["task_id"] for e in workshop.episodes(path).values() if _trains(e, 2)}
        for arm, path in found.items()
    }
    assert of_step["reward-blind"] == of_step["as-written"]
    episodes = workshop.episodes(found["as-written"]).values()
    assert of_step["imitation"] == {e["task_id"] for e in episodes if _trains(e, 0)}
    blind = workshop.lines("credits/00002.jsonl", found["reward-blind"])
    # 0: a turn that the agent does not credit, such as one with a call that can't be read.
    weights_of = {weight for row in blind for weight in row["credit"]["weights"]}
    assert weights_of - {0.0} == {1.0}
    with (found["frozen"].parents[3] / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    frozen = [
        row["temperature"] for row in rows if row["control"] == "frozen" and row["step"] == "2"
    ]
    assert frozen == ["0.0", "0.3", "0.6", "1.0"]
    assert {row["k"] for row in rows} == {"2"}
    assert "With controls" in done.out
    assert "greedy:" in done.out


def _trains(episode: dict[str, Any], step: int) -> bool:
    return bool(episode["step"] == step and episode["split"] == "train")
