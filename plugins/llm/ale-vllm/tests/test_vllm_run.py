"""A run trains while a vLLM of its own samples, on this machine: `ale run` as a command."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .test_vllm_real import ON_GPU, SERVER, START_S, logprobs, tiny

pytestmark = pytest.mark.long

CONFIG: dict[str, Any] = {
    "tasks": {"type": "tbp", "path": "tasks"},
    "sandbox": {"type": "local"},
    "agent": {"type": "single-shot", "time_limit_s": None},
    "llm": {
        "type": "servers",
        "model": "model",
        "dtype": "float32",  # as the weights that the test computes with, on a GPU too
        "start": 1,
        "server": {"type": "vllm-server", **SERVER},
        "timeout_s": START_S,
        "max_tokens": 8,
    },
    "credit": {"type": "ipa", "failure_reward": -0.5},
    "trainer": {"type": "policy", "lr": 1e-2, "correction": "truncate"},
    "observers": [],
    "run": {"steps": 2, "rollouts": 2, "directory": "runs"},
}


def trained(run: Path) -> Any:
    """The policy that the first step has made."""
    from safetensors.torch import load_file

    from ale_llm_policy.pretrained import weights

    policy = tiny(0)
    stored = load_file(run / "checkpoints" / "00000" / "trainer.safetensors")
    named = {key.removeprefix("weight/"): t for key, t in stored.items() if key[:7] == "weight/"}
    weights.load(policy.model, named)
    return policy


CHANNELS = ["shared_memory", "folder"]
if ON_GPU:
    CHANNELS[0] = "cuda_ipc"  # a start takes a minute, and a GPU costs money


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_run_trains_what_its_own_vllm_samples(tmp_path: Path, channel: str) -> None:
    tiny(0).save(tmp_path / "model")
    config = {**CONFIG, "llm": {**CONFIG["llm"], "weights_channel": channel}}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    (tmp_path / "tasks").mkdir()
    check = {"type": "command_exit_code", "command": "test -e done"}
    for name in ("t0", "t1"):
        task = {"id": name, "goal": f"Do {name}.", "success_criteria": [check]}
        (tmp_path / "tasks" / f"{name}.yaml").write_text(json.dumps(task))
    command = [sys.executable, "-m", "ale", "run", "run.yaml"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    policies = [tiny(0), trained(run)]
    episodes = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) == 8
    for episode in episodes:
        (turn,) = episode["trajectory"]["turns"]
        tokens, version = turn["completion"]["tokens"], episode["step"]
        assert {*tokens["policy_versions"]} == {version}
        n = len(tokens["output_ids"])
        own, other = (
            logprobs(policies[each], (*tokens["prompt_ids"], *tokens["output_ids"]))[-n:]
            for each in (version, 1 - version)
        )
        assert tokens["logprobs"] == pytest.approx(own, abs=1e-4)
        assert tokens["logprobs"] != pytest.approx(other, abs=1e-2)
