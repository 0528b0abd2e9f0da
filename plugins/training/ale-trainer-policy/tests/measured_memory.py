"""A process that trains, and prints how much memory that took: bytes, as JSON.

Arguments, each as JSON: a model's config, the dtype of its weights, options of the trainer, and the
tokens of an episode.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from ale.strict import from_plain, structure
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.models import add_adapters, recompute_activations
from ale_trainer_policy.options import PRESETS, PolicyOptions
from ale_trainer_policy.traced import sample_of


def status(name: str) -> int:
    """Bytes of a line of this process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


def train(sizes: dict[str, Any], dtype: str, options: PolicyOptions, context: int) -> None:
    """Two micro-batches of one update."""
    config = LlamaConfig(**sizes)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    if options.lora is not None:
        add_adapters(model, options.lora)
    recompute_activations(model, options)
    learner = Learner(model, options)
    n = max(1, options.max_tokens_per_microbatch // context)
    for _ in range(2):
        datum = learner.packed([sample_of(context, config.vocab_size) for _ in range(n)])
        learner.forward_backward(datum, PRESETS["reinforce"])


def main() -> None:
    """Train something small first: libraries load what they need once."""
    sizes, dtype, given, context = (json.loads(each) for each in sys.argv[1:])
    torch.set_num_threads(1)
    options = structure(from_plain(given), PolicyOptions)
    small = {**sizes, "hidden_size": 32, "intermediate_size": 32, "vocab_size": 64}
    train(small, dtype, options, 16)
    before = status("VmRSS")
    train(sizes, dtype, options, context)
    print(json.dumps(status("VmHWM") - before))


if __name__ == "__main__":
    main()
