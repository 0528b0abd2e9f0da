"""The shortcuts of the study change no number: rollouts that are shared, sandboxes that recall."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.needs("torch"), pytest.mark.long]

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "configs" / "study"
SORT = {"type": "sort", "seed": 10, "count": 4, "files": 2, "reads": 1}
STOP = ["</tool_call>"]
AGENT = {"type": "iflow", "system_prompt": "", "max_turns": 6}


@pytest.fixture
def model(workshop: Any) -> str:
    """A policy that has begun to learn: some of its episodes succeed, and most answers repeat."""
    corpus = (STUDY / "sort.corpus.txt").read_text()
    workshop.write("corpus.txt", corpus)
    whole = ['<tool_call>{"name": "shell", "arguments": {"command": "', '"}}</tool_call>']
    shape = {"layers": 1, "width": 64, "heads": 2, "mlp": 128, "vocabulary": 320, "whole": whole}
    workshop.config(
        plugins=[str(ROOT / "configs" / "sort_tasks.py")],
        tasks=SORT,
        agent=AGENT,
        llm={"type": "policy", "tiny": {"corpus": "corpus.txt", **shape}, "stop": STOP},
        credit={"type": "ipa"},
        starts={"type": "initial", "demonstrations": 16},
        trainer={
            "type": "policy",
            "lr": 3e-3,
            "imitation": {"when": "always", "weight": 1.0, "epochs": 3},
        },
        run={"steps": 16, "tasks_per_step": 4, "rollouts": 1, "concurrency": 8},
    )
    workshop.succeeds("run", "run.yaml", "--directory", "warm")
    workshop.succeeds("model", "warm", "--out", "model")
    return "model"


def stored(run: Path) -> tuple[list[Any], list[Any], bytes]:
    """The values, the credit and the weights of a run."""
    header, *values = map(json.loads, (run / "forks/00000/values.jsonl").read_text().splitlines())
    assert header["rollouts"] == 4
    credits = [json.loads(line) for line in (run / "credits/00000.jsonl").read_text().splitlines()]
    return values, credits, (run / "checkpoints/00000/trainer.safetensors").read_bytes()


def test_shared_rollouts_and_recalled_sandboxes_give_what_real_ones_give(
    workshop: Any, model: str
) -> None:
    parts = ("measured_credit.py", "shared_rollouts.py", "recalled_sandbox.py")
    workshop.config(
        plugins=[str(ROOT / "configs" / "sort_tasks.py"), *(str(STUDY / name) for name in parts)],
        tasks=SORT,
        agent=AGENT,
        sandbox={"type": "recalled", "file": "recalled.jsonl"},
        llm={"type": "policy", "model": model, "max_tokens": 16, "stop": STOP},
        credit={"type": "measured", "rollouts": 4},
        trainer={"type": "policy", "objective": "reinforce", "lr": 1e-4},
        run={"steps": 1, "tasks_per_step": 4, "rollouts": 4, "concurrency": 8, "seed": 7},
    )
    real = {
        "credit": {"type": "measured", "rollouts": 4, "shared": False},
        "sandbox": {"type": "local"},
    }
    for name, sets in (
        ("real", [f"--set={key}={json.dumps(value)}" for key, value in real.items()]),
        ("shared", []),
        ("recalled", []),
    ):
        workshop.succeeds("run", "run.yaml", "--directory", name, *sets)
    expected = stored(workshop.folder / "real")
    rates = {
        n / of
        for each in expected[0]
        for n, of in zip(each["successes"], each["trials"], strict=True)
    }
    assert len(rates) > 2, "there is nothing to compare"
    assert stored(workshop.folder / "shared") == stored(workshop.folder / "recalled") == expected
