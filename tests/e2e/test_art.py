"""`ale art train --in-process` trains a model, and trains further what it has trained."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.needs("torch")

PROBLEMS = Path(__file__).parents[2] / "configs" / "code_problems.jsonl"
PATIENCE_S = 300.0
TINY = {"corpus": str(PROBLEMS), "layers": 1, "vocabulary": 300}
# A model made from a seed only fails, and with these options it learns from that.
LEARNING = {"llm.max_tokens": 2, "credit.type": "ipa", "credit.failure_reward": -1}


def train(
    workshop: Any,
    rate: str,
    model: str | None = None,
    server: str | None = None,
    more: Mapping[str, Any] = {},
) -> Path:
    """One step; without a model one that is made from the seed. The run's folder."""
    made: dict[str, Any] = {"llm.model": None, "llm.tiny": TINY} if model is None else {}
    place = ("--in-process",)
    if server is not None:
        place, made["llm.take_over"] = ("--base-url", server), True
    settings = {**LEARNING, **made, "sandbox.root": str(workshop.space), **more}
    done = workshop.succeeds(
        *("art", "train", *place, "--model", model or "unused", "--learning-rate", rate),
        *("--data", str(PROBLEMS), "--num-steps", "1", "--batch-size", "2", "--rollouts", "2"),
        *("--sandbox", "local"),
        *(f"--set={key}={json.dumps(value)}" for key, value in settings.items()),
        timeout_s=PATIENCE_S,
    )
    assert f"Training: by the trainer policy, learning rate {float(rate)}" in done.err
    assert "  Step 0: reward=0.000, success=0.0% (0/4)" in done.err
    run: Path = workshop.runs[-1]
    return run


def serving(workshop: Any, *flags: str, **environ: str) -> str:
    """The URL of `ale serve` with the model that is made from the seed."""
    workshop.write("serve.yaml", {"llm": {"type": "policy", "tiny": TINY}})
    running = workshop.start("serve", "--config", "serve.yaml", "--port", "0", *flags, **environ)
    found = workshop.wait_for(lambda: re.search(r"http://[\w.]+:\d+/v1", running.printed))
    return str(found[0])


def weights(run: Path) -> bytes:
    return (run / "checkpoints" / "00000" / "trainer.safetensors").read_bytes()


def test_the_default_of_the_learning_rate(workshop: Any) -> None:
    done = workshop.ale("art", "train", "--in-process", "--print-config")
    assert yaml.safe_load(done.out)["trainer"] == {"type": "policy", "lr": 2e-5}


def test_the_learning_rate_changes_what_is_learned(workshop: Any) -> None:
    slow, again, fast = (weights(train(workshop, rate)) for rate in ("1e-4", "1e-4", "1e-2"))
    assert slow == again
    assert slow != fast


def test_a_server_of_ale_is_trained_and_samples_from_what_it_is_given(
    workshop: Any,
) -> None:
    server = serving(workshop)
    slow, fast = (train(workshop, rate, server=server) for rate in ("1e-4", "1e-2"))
    # As for any server, whose probabilities may differ from the trainer's.
    here = train(workshop, "1e-2", more={"trainer.correction": "truncate"})
    assert weights(slow) != weights(fast)
    assert weights(fast) == weights(here)
    assert workshop.sampled(fast) == workshop.sampled(here)
    again = ("art", "train", "--base-url", server, "--dry-run", "--model", "policy")
    done = workshop.succeeds(
        *again, "--data", str(PROBLEMS), "--num-steps", "1", "--sandbox", "local"
    )
    assert "Training: none" in done.err


def test_a_server_that_asks_for_a_key_is_known_as_one_that_is_trained(workshop: Any) -> None:
    server = serving(workshop, "--api-key-env", "KEY", KEY="secret")
    done = workshop.succeeds("art", "train", "--base-url", server, "--print-config")
    made = yaml.safe_load(done.out)
    assert (made["llm"]["type"], made["trainer"]["type"]) == ("servers", "policy")


def test_a_model_that_was_trained_is_trained_further(workshop: Any) -> None:
    run = train(workshop, "1e-3")
    workshop.succeeds("model", str(run), "--out", "model", timeout_s=PATIENCE_S)
    further = train(workshop, "1e-3", model="model")
    (report,) = (
        event
        for event in workshop.lines("events.jsonl", further)
        if event["event"] == "step_finished"
    )
    assert report["metrics"]["steps_skipped"] == 0
    tokens = [
        turn["completion"]["tokens"]
        for episode in workshop.episodes(further).values()
        for turn in episode["trajectory"]["turns"]
    ]
    assert all(trace["output_ids"] and set(trace["policy_versions"]) == {0} for trace in tokens)
