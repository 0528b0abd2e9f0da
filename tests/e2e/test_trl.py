"""`ale run` with TRL's trainers: sampled, graded in real sandboxes, learnt, and sampled again."""

import signal
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

CALL = '<tool_call>{"name": "shell", "arguments": {"command": "%s"}}</tool_call>'
RIGHT, WRONG = "touch apple", "touch stone"
# Starting TRL takes long where the machine is busy.
PATIENCE_S = 900.0

pytestmark = [pytest.mark.long, pytest.mark.needs("torch", "trl")]


@pytest.fixture
def make_config(workshop: Any) -> Callable[..., str]:
    """A model that does one of two things, one of which is right, and a trainer for it."""
    from ale_llm_policy.pretrained import TinyShape, tiny_policy

    for name in ("first", "second"):
        workshop.task(name, check="test -e apple")
    shape = TinyShape(layers=2, width=64, heads=2, mlp=128)
    policy = tiny_policy([RIGHT, WRONG], shape, seed=0, whole=CALL.split("%s"))
    policy.save(workshop.folder / "model")

    def config(**more: Any) -> str:
        workshop.config(
            llm={"type": "policy", "model": "model", "max_tokens": 24, "stop": ["</tool_call>"]},
            agent={"type": "iflow", "system_prompt": "", "max_turns": 1},
            credit={"type": "grpo"},
            **more,
        )
        return "run.yaml"

    workshop.succeeds("run", config(), timeout_s=PATIENCE_S, HF_HUB_OFFLINE="1")
    teach(policy, [turn["prompt_ids"] for turn in sampled(workshop, workshop.run)])
    policy.save(workshop.folder / "model")

    def trained(*, steps: int, **trainer: Any) -> str:
        run = {"steps": steps, "tasks_per_step": 2, "rollouts": 16, "concurrency": 16}
        return config(trainer=trainer, run=run)

    return trained


def sampled(workshop: Any, run: Path) -> list[Any]:
    """The tokens of every turn: ids, their log-probabilities and versions."""
    found = workshop.episodes(run)
    turns = [turn for name in sorted(found) for turn in found[name]["trajectory"]["turns"]]
    return [turn["completion"]["tokens"] for turn in turns]


def teach(policy: Any, asked: Sequence[Sequence[int]]) -> None:
    """To answer with either command: half of what it does is wrong."""
    import torch

    answers = [
        policy.tokenizer(CALL % command, add_special_tokens=False)["input_ids"]
        for command in (RIGHT, WRONG)
    ]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-3)
    for _ in range(80):
        for prompt, answer in product(asked, answers):
            ids = torch.tensor([[*prompt, *answer]])
            labels = torch.tensor([[*[-100] * len(prompt), *answer]])
            policy.model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def metrics(workshop: Any, run: Path) -> list[dict[str, float]]:
    events = workshop.lines("events.jsonl", run)
    return [line["metrics"] for line in events if line["event"] == "step_finished"]


def rewards(workshop: Any, run: Path) -> list[float]:
    """The mean of each step."""
    by_step: dict[str, list[float]] = {}
    for name, episode in workshop.episodes(run).items():
        by_step.setdefault(name.split("-")[0], []).append(episode["reward"])
    return [sum(by_step[step]) / len(by_step[step]) for step in sorted(by_step, key=int)]


@pytest.mark.parametrize(
    "trainer",
    [
        {"type": "grpo", "lora": None, "learning_rate": 7e-4},
        {"type": "grpo", "lora": None, "advantage": "credit", "learning_rate": 7e-4},
        {"type": "dpo", "pairs_per_group": 8, "learning_rate": 1e-3},
    ],
)
def test_the_reward_of_a_run_rises(
    workshop: Any, make_config: Callable[..., str], trainer: dict[str, Any]
) -> None:
    workshop.succeeds(
        "run", make_config(steps=14, **trainer), timeout_s=PATIENCE_S, HF_HUB_OFFLINE="1"
    )
    run = workshop.runs[-1]
    means = rewards(workshop, run)
    assert len(means) == 14
    assert means[0] < 0.7
    # Of 32 episodes each.
    assert sum(means[-4:]) / 4 > means[0] + 0.1, means
    assert all(each["updates"] >= 1 for each in metrics(workshop, run)[:2])


def test_a_run_that_was_killed_resumes_to_the_same_policy(
    workshop: Any, make_config: Callable[..., str]
) -> None:
    config = make_config(steps=4, type="grpo", lora={"r": 8}, learning_rate=2e-3)
    asked = {"timeout_s": PATIENCE_S, "HF_HUB_OFFLINE": "1"}
    workshop.succeeds("run", config, **asked)
    whole = workshop.runs[-1]
    running = workshop.start("run", config, HF_HUB_OFFLINE="1")
    workshop.wait_for(lambda: len(workshop.runs) == 3, timeout_s=PATIENCE_S)
    killed = workshop.runs[-1]
    kept = killed / "checkpoints" / "00002"
    workshop.wait_for(kept.exists, timeout_s=PATIENCE_S)
    running.signal(signal.SIGKILL)
    running.process.wait()
    workshop.succeeds("run", "--resume", str(killed), **asked)
    assert sampled(workshop, killed) == sampled(workshop, whole), "to the bit"
    losses = [[each.get("loss") for each in metrics(workshop, run)] for run in (whole, killed)]
    assert losses[0] == losses[1]
