"""A training step on a GPU, on half a billion weights: our packings, and TRL's GRPO trainer.

A forest of shared prefixes, rows side by side, and padded rows. Random weights of a Qwen3 in the
sizes of Qwen2.5-0.5B, 16 rollouts of one task with a shared prompt, bf16, one GPU. Wall seconds of
the best of several steps, with everything on the GPU done before the clock is read; peak memory;
tokens a second, counting what was sampled and shown, however often it was computed; and the model's
FLOPs for these tokens (6 for each weight and token, attention aside) as a share of what the GPU can
do, which a forest may have above the padded rows', as it computes less.

    python tests/bench/bench_gpu.py
    python tests/bench/bench_gpu.py --small   # the same code on a tiny model, also without a GPU

Without a GPU it says so and ends. It sets no aim: it tells.
"""

import argparse
import gc
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from bench_trainer import batch_of, episodes, lengths, missing, ours, trl

LARGE = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}
PACKINGS = {
    "forest of shared prefixes": "tree",
    "rows side by side": "packed",
    "padded rows": "padded",
}
STRETCH = 8
"""Turns of about 150 tokens instead of 18."""
WORDS = 512
"""Ids that occur: TRL's tokenizer has a word for each."""
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
"""Dense FLOP/s in bf16, by the makers' data sheets."""


def make(shape: dict[str, Any], device: str) -> Any:
    """The same random weights each time, in fp32: autocast makes the products bf16."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        **shape, max_position_embeddings=8192, tie_word_embeddings=True, initializer_range=0.02
    )
    model: Any = Qwen3ForCausalLM(config)
    return model.to(device)


def clock(device: str) -> float:
    """Seconds, when the GPU has done what it was told."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measured(name: str, n_tokens: int, n_weights: int, step: Callable[[], Any], gpu: str) -> None:
    """Print one row of the table."""
    import torch

    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds, norm = step()
    gib = torch.cuda.max_memory_allocated() / 2**30 if gpu else 0.0
    rate = n_tokens / seconds
    peak = next((value for part, value in PEAKS.items() if part in gpu), None)
    share = f"{6 * n_weights * rate / peak:7.1%}" if peak else "      ?"
    memory = f"{gib:9.1f}" if gpu else "        ?"
    print(f"{name:28}{seconds:9.3f}{rate:12,.0f}{share}{memory}{norm:12.5g}", flush=True)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tiny model, also without a GPU")
    small = parser.parse_args().small
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.simplefilter("ignore")
    lacking = missing("torch", "transformers", "ale_trainer_policy")
    if lacking:
        print(f"skipped: {', '.join(lacking)} not installed (pip install -e .[train])")
        return 0
    import torch

    if not small and not torch.cuda.is_available():
        print("skipped: there is no GPU (--small tries the code on a tiny model)")
        return 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gpu = torch.cuda.get_device_name() if device == "cuda" else ""
    shape = SMALL if small else LARGE
    built, now = partial(make, shape, device), partial(clock, device)
    n_weights = sum(parameter.numel() for parameter in built().parameters())
    made = episodes(WORDS, 1 if small else STRETCH)
    batch, n_tokens = batch_of(made), sum(lengths(made))
    print(
        f"{gpu or 'CPU'}; {n_weights / 1e6:,.1f} M weights; {len(made)} rows, {n_tokens:,} tokens"
    )
    print(f"{'one step, GRPO, AdamW, bf16':28}{'seconds':>9}{'tokens/s':>12}{'MFU':>7}", end="")
    print(f"{'peak GiB':>9}{'norm':>12}")
    for name, packing in PACKINGS.items():
        step = partial(ours, batch, packing, built, now, precision="bf16")
        measured(name, n_tokens, n_weights, step, gpu)
    lacking = missing("trl", "datasets")
    if lacking:
        print(f"skipped: TRL's GRPO trainer (not installed: {', '.join(lacking)})")
        return 0
    settings = {"use_cpu": not gpu, "bf16": True, "max_completion_length": 4096}
    step = partial(trl, made, built, now, **settings)
    measured("TRL's GRPO trainer", n_tokens, n_weights, step, gpu)
    return 0


if __name__ == "__main__":
    sys.exit(main())
