"""What asking a server costs: the client's and the protocol's overhead for each request.

A server that samples from a table of bigrams runs in a process of its own, so that what is measured
is the pool, its client and HTTP. A thousand requests at once, with prompts of 2,000 ids and answers
of 8, and one after another. Exit status 1 where the client's own CPU time is above 1 ms for each
request, or where a weight update by folder of a model with 0.5 GB, with `ale serve` in a process of
its own, takes more than 8 times as long as writing, reading and copying the weights in this process
just before; or where one that the server fetches over HTTP takes more than twice as long as that,
one through gloo longer than over HTTP, or one through shared memory more than 1.25 times as long as
by folder, which may be in memory too (TMPDIR=/dev/shm). Where there is a GPU, the model is on it,
and one update goes through CUDA IPC.

    python tests/bench/bench_servers.py [requests]
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
import torch

from ale.plugin import BuildContext
from ale.types import (
    CompletionRequest,
    Conversation,
    Message,
    PolicySnapshot,
    Sampling,
    TokenTrace,
)
from ale_llm_policy.build import build_servers
from ale_llm_policy.options import ServersOptions, TinyOptions
from ale_llm_policy.pretrained import TorchPolicy, weights
from ale_llm_policy.testing import forward_logits
from ale_servers.client import Connections, HTTPServer
from ale_servers.pool import PoolOptions, ServerPool
from ale_servers.records import SampleRequest, Weights
from ale_servers.registry import Addresses
from ale_servers.testing.bigram import CONTEXT, FINGERPRINT, FIRST, digest_of

MAX_MS = 1.0
"""CPU milliseconds of the client for each request."""
MAX_UPDATE = 8.0
"""Of an update on one server, in times of writing, reading and copying in one process."""
MAX_FETCHED = 2.0
"""Of an update over HTTP, in times of one by folder."""
MAX_SHARED = 1.25
"""Of an update through memory, in times of one by folder."""
MAX_SENT = 1.0
"""Of an update through gloo, in times of one over HTTP."""
Channel = Literal["folder", "shared_memory", "cuda_ipc", "gloo"]
UPDATES = 4
"""Updates that are measured, after a first one in which the server also copies the pages of its
model's file."""
SERVER = """
import asyncio
from ale_servers.testing.bigram import BigramServer
from ale_servers.testing.serving import serving

async def main():
    async with serving(BigramServer(max_running=512)) as url:
        print(url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def overhead(url: str, n: int, at_once: int) -> tuple[float, float]:
    """CPU and wall milliseconds for each request."""
    connections = Connections()
    pool = ServerPool(
        Addresses([url]),
        lambda entry: HTTPServer(entry, connections),
        fingerprint=FINGERPRINT,
        initial=Weights(version=0, digest=digest_of(FIRST), folder=""),
        options=PoolOptions(),
    )
    prompt = tuple(i % 32 for i in range(CONTEXT - 48))
    asked = [
        SampleRequest(id=str(i), prompt_ids=prompt, max_tokens=8, seed=str(i)) for i in range(n)
    ]
    await pool.sample(msgspec.structs.replace(asked[0], id="first"), "first")
    free = asyncio.Semaphore(at_once)

    async def one(request: SampleRequest) -> None:
        async with free:
            await pool.sample(request, request.id)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one(each) for each in asked))
    found = (time.process_time() - cpu) / n * 1e3, (time.perf_counter() - wall) / n * 1e3
    await pool.aclose()
    await connections.aclose()
    return found


async def update(address: str = "", channel: Channel = "folder") -> dict[str, float]:
    """Seconds of weight updates of 0.5 GB, the median after a first one; and of the pause in them.

    Args:
        address: where the server fetches the weights; empty if it reads the folder.
        channel: how the server gets the weights.
    """
    tiny = TinyOptions(layers=10, width=1024, heads=16, kv_heads=8, head_dim=64, mlp=2816)
    with tempfile.TemporaryDirectory() as folder:
        options = ServersOptions(
            tiny=tiny,
            start=1,
            max_tokens=2,
            dtype="float32",  # else a GPU's log-probabilities are rounded
            weights_address=address,
            weights_channel=channel,
        )
        llm = build_servers(options, BuildContext(run_directory=Path(folder)))
        if address:
            _hide_folder(llm)
        ask = CompletionRequest(
            messages=(Message(role="user", content="a b"),),
            conversation=Conversation(episode_id="e", task_id="t", rollout=0, seed=0),
            turn=0,
            sampling=Sampling(max_tokens=2),
        )
        await llm.complete(ask)
        size = sum(weight.nbytes for weight in llm.policy.model.parameters())
        paused: list[float] = []
        _time_pause(llm, paused)
        plain, took = [], []
        for version in range(1, UPDATES + 2):
            with torch.no_grad():
                for weight in llm.policy.model.parameters():
                    weight *= 1.01
            begun = time.perf_counter()
            copy = Path(folder) / f"copy-{version}"
            copy.mkdir()
            weights.write(copy, dict(llm.policy.base.named_parameters()))
            llm.policy.load_weights(copy)
            plain.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            await llm.load_policy(PolicySnapshot(version=version))
            took.append(time.perf_counter() - begun)
            answer = await llm.complete(ask)
            assert answer.tokens is not None
            assert {*answer.tokens.policy_versions} == {version}
            check_exact(llm.policy, answer.tokens)
            shutil.rmtree(copy)
        await llm.aclose()
    return {
        "GB": size / 1e9,
        "first": took[0],
        "seconds": median(took[1:]),
        "plain": median(plain[1:]),
        "paused": median(paused[1:]),
    }


def check_exact(policy: TorchPolicy, tokens: TokenTrace) -> None:
    """The tokens were sampled from the policy's weights."""
    logits = forward_logits(policy, tokens.prompt_ids, tokens.output_ids)
    n = len(tokens.output_ids)
    chosen = torch.tensor(tokens.output_ids)[:, None]
    meant = logits[-n:].log_softmax(-1).gather(1, chosen)[:, 0].tolist()
    assert max(abs(a - b) for a, b in zip(tokens.logprobs, meant, strict=True)) < 1e-3


def _hide_folder(llm: Any) -> None:
    """Name a folder that the server does not have."""
    published = llm._published

    async def hidden(snapshot: PolicySnapshot) -> Weights:
        weights: Weights = await published(snapshot)
        elsewhere = f"/elsewhere/{Path(weights.folder).name}"
        return msgspec.structs.replace(weights, folder=elsewhere)

    llm._published = hidden


def _time_pause(llm: Any, paused: list[float]) -> None:
    (member,) = llm._pool.members
    server, begun = member.server, [0.0]
    pause, resume = server.pause, server.resume

    async def timed_pause(*given: Any) -> None:
        begun[0] = time.perf_counter()
        await pause(*given)

    async def timed_resume() -> None:
        await resume()
        paused.append(time.perf_counter() - begun[0])

    server.pause, server.resume = timed_pause, timed_resume


def main() -> int:
    """Measure and print; 1 where an aim is missed."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    torch.set_num_threads(1)
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        met = True
        for at_once in (1, n):
            cpu, wall = asyncio.run(overhead(url, n if at_once > 1 else n // 4, at_once))
            met = met and cpu <= MAX_MS
            verdict = "ok" if cpu <= MAX_MS else "MISSED"
            print(
                f"{at_once:5} at once: client {cpu:.2f} ms CPU a request <= {MAX_MS:g}  {verdict}"
                f"   ({wall:.2f} ms wall)"
            )
    finally:
        process.terminate()
        process.wait()
    folder = asyncio.run(update())
    rows = [("by folder", folder, folder["plain"], "a plain copy", MAX_UPDATE)]
    others: list[tuple[str, str, Channel, float]] = [
        ("over HTTP", "auto", "folder", MAX_FETCHED),
        ("through shared memory", "", "shared_memory", MAX_SHARED),
    ]
    if torch.cuda.is_available():
        others.append(("through CUDA IPC", "", "cuda_ipc", MAX_SHARED))
    for way, address, channel, most in others:
        found = asyncio.run(update(address, channel))
        rows.append((way, found, folder["seconds"], "by folder", most))
    http = rows[1][1]["seconds"]
    rows.append(("through gloo", asyncio.run(update("", "gloo")), http, "over HTTP", MAX_SENT))
    for way, found, base, what, most in rows:
        ratio = found["seconds"] / base
        met = met and ratio <= most
        print(
            f"update of {found['GB']:.2f} GB {way}: {found['seconds']:.2f} s, of which "
            f"{found['paused']:.2f} s paused (the first one {found['first']:.2f} s); "
            f"{ratio:.1f} times {what} <= {most:g}  "
            f"{'ok' if ratio <= most else 'MISSED'}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
