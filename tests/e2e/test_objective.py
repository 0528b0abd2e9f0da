"""A loss in a plugin file trains a policy, beside a preset and in several processes."""

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch")

MINE = '''\
import ale
import torch


@ale.tasks
def sayings(*, count: int = 2):
    graded = (ale.CriterionSpec(type="vowels"),)
    return [ale.Task(id=f"say-{i}", goal="say " * i, criteria=graded) for i in range(count)]


@ale.criterion
def vowels(answer) -> float:
    return sum(answer.text.count(each) for each in "aeiou") / max(1, len(answer.text))


@ale.objective
def mine(tokens, logp, old_logp, entropy, *, clip: float = 0.2):
    """PPO's surrogate."""
    ratio = torch.where(tokens.weight != 0, logp - old_logp, 0.0).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * tokens.weight, clipped * tokens.weight).sum()


@ale.objective
def still(tokens, logp, old_logp, entropy):
    """Learns nothing."""
    return 0 * logp.sum()
'''


@pytest.fixture
def config(workshop: Any) -> str:
    workshop.write("mine.py", MINE)
    workshop.write("corpus.txt", "say a vowel and another one\n")
    workshop.config(
        plugins=["mine.py"],
        tasks={"type": "sayings"},
        llm={
            "type": "policy",
            "tiny": {"corpus": "corpus.txt", "layers": 1, "width": 16, "heads": 2, "mlp": 16},
            "max_tokens": 8,
        },
        agent={"type": "single-shot"},
        credit={"type": "grpo"},
        trainer={"type": "policy", "objective": "ipa", "lr": 1e-2, "epochs": 2},
        run={"steps": 1, "rollouts": 4, "concurrency": 4},
    )
    return "run.yaml"


def weights(run: Path) -> dict[str, Any]:
    """The trained parameters of a run's last checkpoint."""
    from ale_training.checkpoint import read_tensors

    *_, last = sorted((run / "checkpoints").iterdir())
    return read_tensors(last, ("weight/",))


def distance(mine: dict[str, Any], theirs: dict[str, Any]) -> float:
    assert mine.keys() == theirs.keys()
    return sum(float((mine[name] - theirs[name]).norm()) for name in mine)


def test_an_ablation_trains_with_each_objective(workshop: Any, config: str) -> None:
    vary = "trainer.objective=ipa,mine,still"
    done = workshop.succeeds("ablate", config, "--vary", vary, "--seeds", "1")
    assert "trainer.objective=mine" in done.text
    found = {}
    for manifest in workshop.folder.glob("runs/**/manifest.json"):
        stored = json.loads(manifest.read_text())["config"]["trainer"]["objective"]
        name = stored if isinstance(stored, str) else stored["type"]
        found[name] = weights(manifest.parent)
    assert set(found) == {"ale-trainer-policy/ipa", "mine.py/mine", "mine.py/still"}
    start = found["mine.py/still"]  # every run begins with the same weights
    assert distance(found["mine.py/mine"], start) > 0.01, "the loss of the file is not trained on"
    assert distance(found["ale-trainer-policy/ipa"], start) > 0.01
    assert distance(found["mine.py/mine"], found["ale-trainer-policy/ipa"]) > 0.001


def test_processes_that_train_have_the_function_too(workshop: Any, config: str) -> None:
    chosen = ("--set", "trainer.objective={type: mine, clip: 0.1}", "--set", "trainer.sync=copy")
    losses = []
    for processes in (1, 2):
        more = ("--set", f"trainer.processes={processes}", "--set", f"run.name=n{processes}")
        workshop.succeeds("run", config, *chosen, *more)
        (run,) = workshop.folder.glob(f"runs/*n{processes}")
        (step,) = [e for e in workshop.lines("events.jsonl", run) if e["event"] == "step_finished"]
        losses.append([step["metrics"][name] for name in ("loss", "grad_norm", "updates")])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-6)
    assert losses[0][1] > 0


def test_a_misspelt_objective_is_named_with_the_nearest(workshop: Any, config: str) -> None:
    done = workshop.ale("check", config, "--set", "trainer.objective=mien")
    assert done.code == 2
    assert "trainer.objective: no objective 'mien'; installed: " in done.err
    assert "did you mean 'mine'?" in done.err
    done = workshop.ale("check", config, "--set", "trainer.objective={type: mine, clap: 0.1}")
    assert "trainer.objective.clap: unknown option" in done.err
    assert "did you mean 'clip'?" in done.err


def test_one_page_learns(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "one_page_rl.py"
    assert len(path.read_text().splitlines()) <= 150
    spec = importlib.util.spec_from_file_location("one_page_rl", path)
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    sys.modules["one_page_rl"] = page
    try:
        spec.loader.exec_module(page)
        rewards = asyncio.run(page.learn())
    finally:
        del sys.modules["one_page_rl"]
    assert sum(rewards[-3:]) > 2 * sum(rewards[:3]), rewards
    assert capsys.readouterr().out.startswith("step  0: reward 0.1")
