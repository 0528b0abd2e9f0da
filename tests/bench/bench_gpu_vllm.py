"""A run on a GPU whose model a vLLM samples: sampling, training, and weights handed over.

Half a billion random weights, of a Qwen3 in the sizes of Qwen2.5-0.5B. `llm: {type: servers,
start: 1, server: {type: vllm-server}}` starts a vLLM from the environment that `ale engines install
vllm` made; it shares the GPU with the trainer, and gets a third of its memory. A step samples 64
answers through the component, trains on them with the trainer ``policy`` and truncated ratios, and
hands the new weights to vLLM by a folder; in the end they are handed over by each channel. Wall
seconds, the median of several steps after a first one; tokens a second are those of the answers
when sampling, and of prompts and answers when training.

Exit status 1 where a token was not sampled from the weights of the step before, or where trainer
and vLLM disagree about its probability: more than one token in twenty has a ratio that differs from
1 by more than `MAX_MISMATCH`.
It sets no aim for speed: it tells.

    python tests/bench/bench_gpu_vllm.py
    python tests/bench/bench_gpu_vllm.py --small   # the same code on a tiny model, without a GPU
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bench_gpu import LARGE, SMALL, clock, make
from bench_trainer import missing
from bench_weight_sync import ROLLOUTS, TASKS, sampled

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.strict import NameOrPath
from ale.types import Batch, PolicySnapshot, TokenTrace

STEPS = 3
MAX_MISMATCH = 0.1
"""Of pi_old / mu_old from 1, in the 5th and the 95th percentile; in bf16 both round."""


def write_model(shape: dict[str, Any], folder: Path) -> int:
    """A model's folder with a tokenizer of as many tokens; the number of its weights."""
    from tokenizers import Tokenizer

    from ale_llm_policy.pretrained import TorchPolicy, make_tokenizer
    from ale_training.chat import ChatTemplate

    # Most tokens of the vocabulary are unreachable from text, but any id can be read.
    tokenizer = make_tokenizer(None, vocabulary=512)
    plain = json.loads(tokenizer.backend_tokenizer.to_str())
    known = plain["model"]["vocab"]
    n = len(tokenizer)
    known |= {f"unreachable{i}": i for i in range(n, shape["vocab_size"])}
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(plain))
    model = make({**shape, "vocab_size": max(n, shape["vocab_size"])}, "cpu")
    TorchPolicy(model, tokenizer, ChatTemplate(tokenizer), name="random").save(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def traces_of(batch: Batch) -> list[TokenTrace]:
    """The tokens of all answers."""
    found = [
        turn.completion.tokens
        for credited in batch.groups
        for rollout in credited.group.rollouts
        for turn in rollout.episode.trajectory.turns
    ]
    return [each for each in found if each is not None]


async def handed_over(llm: Any, last: PolicySnapshot, gpu: Any) -> dict[str, float]:
    """Seconds in which vLLM has the same weights by each channel, the median of several times."""
    from ale_llm_policy.shared import SharedWeights

    channels = {"folder": llm._channel, "shared_memory": SharedWeights(None)}
    if gpu is not None:
        channels["cuda_ipc"] = SharedWeights(gpu)
    took: dict[str, list[float]] = {name: [] for name in channels}
    version = last.version
    for name, channel in channels.items():
        llm._channel = channel
        for _ in range(STEPS + 1):
            version += 1
            begun = time.perf_counter()
            await llm.load_policy(PolicySnapshot(version=version, weights=last.weights))
            took[name].append(time.perf_counter() - begun)
        channel.remove()
    llm._channel = channels["folder"]
    return {name: median(seconds[1:]) for name, seconds in took.items()}


async def measured(model: Path, folder: Path, arguments: Sequence[str], *, small: bool) -> bool:
    """Print what each part of a step takes; were all tokens of the weights that they should be?"""
    import torch

    from ale_llm_policy.build import build_servers
    from ale_llm_policy.options import ServersOptions
    from ale_trainer_policy.options import CorrectionOptions, PolicyOptions
    from ale_trainer_policy.plugin import ale_trainers

    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    # Its environment is named as its build: cpu or cuda.
    server: dict[str, Any] = {"type": "vllm-server", "build": device, "start_s": 1800.0}
    if gpu:
        server |= {"gpu_memory": 0.33, "arguments": arguments}
    options = ServersOptions(
        model=NameOrPath(str(model)),
        start=1,
        server=server,
        timeout_s=1800.0,
        max_tokens=16 if small else 256,
    )
    context = BuildContext(run_directory=folder, environ=dict(os.environ))
    llm = build_servers(options, context)
    learning = PolicyOptions(
        sync="copy",
        lr=1e-3 if small else 1e-5,
        objective="reinforce",
        correction=CorrectionOptions(method="truncate"),
    )
    trainer = next(one for one in ale_trainers() if one.name == "policy").build(learning, context)
    trainer.attach(llm)
    took: dict[str, list[float]] = {"sampling": [], "training": [], "handing over": []}
    rates: dict[str, list[float]] = {"sampling": [], "training": []}
    good = True
    for step in range(STEPS + 1):
        times = [clock(device)]
        batch = await sampled(llm, step)
        times.append(clock(device))
        report = await trainer.step(batch)
        times.append(clock(device))
        await llm.load_policy(trainer.snapshot())
        times.append(clock(device))
        passed = (after - before for before, after in pairwise(times))
        seconds = dict(zip(took, passed, strict=True))
        traces = traces_of(batch)
        versions = {version for trace in traces for version in trace.policy_versions}
        good = good and versions == {step} and report.policy_version == step + 1
        ends = (report.metrics[f"mismatch_{end}"] for end in ("p05", "p95"))
        mismatch = max(abs(end - 1) for end in ends)
        good = good and mismatch <= MAX_MISMATCH
        print(f"step {step}: sampled by {sorted(versions)}, mismatch {mismatch:.2g}", flush=True)
        answered = sum(len(trace.output_ids) for trace in traces)
        for part, each in seconds.items():
            took[part].append(each)
        rates["sampling"].append(answered / seconds["sampling"])
        rates["training"].append(report.metrics["tokens_in_rows"] / seconds["training"])
    channels = await handed_over(llm, trainer.snapshot(), torch.device("cuda") if gpu else None)
    await llm.aclose()
    print(f"{'':14}{'seconds':>9}{'tokens/s':>12}")
    for part, spent in took.items():
        rate = f"{median(rates[part][1:]):12,.0f}" if part in rates else ""
        print(f"{part:14}{median(spent[1:]):9.3f}{rate}")
    for name, handing in channels.items():
        ratio = handing / channels["folder"]
        print(f"weights by {name:13} {handing:6.3f} s, {ratio:.2f} times by folder")
    if gpu:
        print(f"the trainer's peak: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    return good


def main() -> int:
    """Measure and print; 1 where tokens are of other weights or probabilities."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tiny model, also without a GPU")
    parser.add_argument(
        "--argument", action="append", default=[], help="a further argument of vLLM; repeatable"
    )
    given = parser.parse_args()
    small = given.small
    lacking = missing("torch", "transformers", "ale_trainer_policy", "ale_vllm")
    if lacking:
        print(f"skipped: {', '.join(lacking)} not installed (pip install -e .[train])")
        return 0
    import torch

    if not small and not torch.cuda.is_available():
        print("skipped: there is no GPU (--small tries the code on a tiny model)")
        return 0
    from ale_vllm.recipes import python_of

    gpu = torch.cuda.is_available()
    try:
        python_of("cuda" if gpu else "cpu")
    except InputError as error:
        print(f"skipped: {error}")
        return 0
    name = torch.cuda.get_device_name() if gpu else "CPU"
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        n = write_model(SMALL if small else LARGE, Path(folder) / "model")
        print(f"{name}; {n / 1e6:,.1f} M weights; {TASKS * ROLLOUTS} answers a step", flush=True)
        work = measured(Path(folder) / "model", Path(folder), given.argument, small=small)
        good = asyncio.run(work)
        print(f"all of it: {time.perf_counter() - began:.0f} s, most of it vLLM's start")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
