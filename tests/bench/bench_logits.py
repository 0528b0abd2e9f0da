"""What slicing the logits saves: peak memory of one pass over a batch, vocabulary 32,768.

The same batch, forward and backward, once with all logits held (``logits_mb: null``) and once a
slice at a time, each in a process of its own: the peak of the resident set over what it was before
the pass, so that model, batch and libraries are not counted. Exit status 1 where slices take more
than a fifth of the memory, or the two gradients are further apart than 1e-6.

    python tests/bench/bench_logits.py
"""

import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

VOCAB = 32_768
TRAJECTORIES = 8
TOKENS = 192
SLICE_MB = 8.0
LEAST = 5.0
"""Least ratio of the memory of all logits to that of slices."""
SAME = 1e-6
"""How far the gradients may be apart, relatively."""


def learner(logits_mb: float | None) -> Any:
    """A model of 4.5 million parameters, nearly all of them for the vocabulary."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from ale_trainer_policy.learner import Learner
    from ale_trainer_policy.options import LearnOptions

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    return Learner(Qwen3ForCausalLM(config), LearnOptions(logits_mb=logits_mb))


def datum() -> Any:
    """Trajectories of which every token but the first is trained on."""
    from ale_trainer_policy.samples import Sample
    from ale_trainer_policy.tree import pack

    rng = np.random.default_rng(0)
    made = []
    for number in range(TRAJECTORIES):
        n = TOKENS
        made.append(
            Sample(
                episode=str(number),
                rows=(rng.integers(0, VOCAB, n + 1),),
                row=np.zeros(n, np.int64),
                at=np.arange(1, n + 1),
                turn=np.zeros(n, np.int64),
                place=np.arange(n),
                chunk=np.arange(n) // 16,
                weight=rng.normal(size=n),
                imitation=np.zeros(n),
                sampled=np.ones(n, np.bool_),
                behaviour_logp=np.full(n, -10.4),
                version=np.zeros(n, np.int64),
                positive=True,
            )
        )
    return pack(made)


def peak() -> float:
    """Of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(logits_mb: float | None, target: str) -> None:
    """One pass; its peak, its CPU seconds and its gradient go to a file."""
    from ale_trainer_policy.options import PRESETS

    torch.set_num_threads(1)
    mine, batch = learner(logits_mb), datum()
    before, start = peak(), time.process_time()
    mine.forward_backward(batch, PRESETS["reinforce"])
    seconds, memory = time.process_time() - start, peak() - before
    gradient = torch.cat([p.grad.flatten() for p in mine.parameters])
    torch.save({"memory": memory, "seconds": seconds, "gradient": gradient}, target)


def in_a_process(logits_mb: float | None, folder: Path) -> dict[str, Any]:
    """What `measure` finds in a fresh one."""
    target = folder / "found.pt"
    worker = multiprocessing.get_context("spawn").Process(
        target=measure, args=(logits_mb, str(target))
    )
    worker.start()
    worker.join()
    if worker.exitcode:
        raise SystemExit(f"a pass ended with exit status {worker.exitcode}")
    found: dict[str, Any] = torch.load(target)
    return found


def main() -> int:
    """Measure and print; 1 where an aim is missed."""
    n = TRAJECTORIES * TOKENS
    print(f"{n} tokens, {n * VOCAB * 4 / 2**20:.0f} MiB of logits in fp32")
    with tempfile.TemporaryDirectory() as folder:
        whole = in_a_process(None, Path(folder))
        sliced = in_a_process(SLICE_MB, Path(folder))
    for name, found in (("all logits", whole), (f"slices of {SLICE_MB:g} MiB", sliced)):
        print(f"{name:18}{found['memory']:8.0f} MiB{found['seconds']:8.2f} cpu-seconds")
    ratio = whole["memory"] / sliced["memory"]
    apart = (whole["gradient"] - sliced["gradient"]).norm() / whole["gradient"].norm()
    slower = sliced["seconds"] / whole["seconds"]
    met = ratio >= LEAST and float(apart) <= SAME
    print(
        f"memory {ratio:.1f} times less (>= {LEAST:g}), gradients {float(apart):.1e} apart "
        f"(<= {SAME:g}), {slower:.2f} times the CPU: {'ok' if met else 'MISSED'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
