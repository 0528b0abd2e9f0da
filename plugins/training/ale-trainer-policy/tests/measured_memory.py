"""Processes that train, and print how much memory that took them together: bytes, as JSON.

Arguments, each as JSON: a model's config, the dtype of its weights, whether they are in 4 bits,
options of the trainer, the tokens of an episode, and the type of the device. On a GPU it is the
GPU's memory, of one process.
"""

import gc
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

from ale.strict import from_plain, structure
from ale_trainer_policy.models import prepare
from ale_trainer_policy.options import PRESETS, PolicyOptions
from ale_trainer_policy.traced import sample_of
from ale_trainer_policy.worker_group import OwnRanks, make_learner
from ale_training.quantised import keep_format
from ale_training.testing import InProcessLLM

UPDATES = 2
"""The second one finds the moments of the first."""


def status(pid: int, name: str) -> int:
    """Bytes of a line of a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


def made(sizes: dict[str, Any], dtype: torch.dtype, device: str, *, quantised: bool) -> Any:
    """A model with random weights."""
    model: Any = AutoModelForCausalLM.from_config(LlamaConfig(**sizes), dtype=dtype)
    if not quantised:
        return model.to(device)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, quantization_config=config, device_map={"": device}
        )
    for each in model.parameters():
        if each.is_floating_point():
            # Otherwise a view of the whole file, whose pages count as this process's.
            each.data = each.data.clone()
    keep_format(model)
    return model


def train(
    sizes: dict[str, Any],
    model: Any,
    options: PolicyOptions,
    context: int,
    ready: Callable[[], None],
) -> None:
    """Updates of two micro-batches in each process, with the weights handed over in between."""
    policy = InProcessLLM(model).policy
    gc.collect()
    ready()
    learner = make_learner(prepare(policy, options), options)
    n = max(1, options.max_tokens_per_microbatch // context)
    for _ in range(UPDATES):
        pieces = [
            [sample_of(context, sizes["vocab_size"]) for _ in range(n)]
            for _ in range(2 * options.processes)
        ]
        for _ in learner.forward_backward_each(pieces, PRESETS["reinforce"]):
            pass
        learner.optim_step()
        if options.sync == "copy":
            learner.full_weights()


def main(given: Sequence[str]) -> None:
    """Train something small first: libraries load what they need once."""
    sizes, dtype, quantised, plain, context, device = (json.loads(each) for each in given)
    torch.set_num_threads(1)
    options = structure(from_plain(plain), PolicyOptions)
    ranks = OwnRanks(options.processes, gpu=False) if options.is_sharded else None
    pids = [os.getpid(), *(each.pid for each in multiprocessing.active_children())]

    def forget_peak() -> None:
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            return
        for pid in pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def used(*, peak: bool) -> int:
        if device == "cuda":
            return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
        return sum(status(pid, "VmHWM" if peak else "VmRSS") for pid in pids)

    small = {**sizes, "hidden_size": 32, "intermediate_size": 32, "vocab_size": 64}
    small |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    kind = getattr(torch, dtype)
    train(small, made(small, kind, device, quantised=quantised), options, 16, forget_peak)
    gc.collect()
    before = used(peak=False)
    train(sizes, made(sizes, kind, device, quantised=quantised), options, context, forget_peak)
    print(json.dumps(used(peak=True) - before))
    if ranks is not None:
        ranks.close()


if __name__ == "__main__":
    main(sys.argv[1:])
