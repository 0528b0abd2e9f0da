"""Tokens a cpu-second of the model ``policy`` against transformers' own ways to generate.

One process, one thread, the tiny policy, 64 prompts of 128 tokens, 128 sampled tokens each, no
early end. `generate` pads nothing here (equal lengths), its best case. `generate_batch` has a
cache that holds all requests at once. Ours goes through `complete`: it also records
log-probabilities, reads the answers and builds the completions. Best of several rounds, taken in
turn, so that a busy machine harms all alike. Exit status 1 where an aim is missed.

    python tests/bench/bench_policy_sampling.py [rounds]
"""

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from ale.testing.builders import conversation
from ale.types import CompletionRequest, Message, Sampling
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.options import PolicyOptions
from ale_llm_policy.pretrained import TinyShape, tiny_policy

BATCH = 64
N_PROMPT = 128
N_NEW = 128
AIMS = {"generate": 1.3, "generate_batch": 3.0}
"""Least ratio of our tokens a cpu-second to theirs."""


def requests() -> list[CompletionRequest]:
    """Conversations whose prompts differ from the first token on."""
    words = "list the files of this folder and count their lines then write a report about it"
    made = []
    for number in range(BATCH):
        text = f"{number * 7919} " + " ".join(words.split()[number % 16 :] * 40)
        made.append(
            CompletionRequest(
                messages=(Message(role="user", content=text),),
                conversation=conversation(seed=number),
                turn=0,
                sampling=Sampling(max_tokens=N_NEW),
            )
        )
    return made


class Bench:
    """The same policy under three ways to sample."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.policy = tiny_policy(None, TinyShape(), seed=0)
        self.asked = requests()
        template = self.policy.template
        # Cut to one length, so that nobody pads.
        self.ids = [template.prompt(each.messages)[:N_PROMPT] for each in self.asked]
        assert all(len(each) == N_PROMPT for each in self.ids)

    def ours(self) -> int:
        """`PolicyLLM.complete`, all at once, by a model without a cache from the round before."""
        return asyncio.run(self._ours())

    async def _ours(self) -> int:
        llm = wrap_policy(self.policy, PolicyOptions(max_batch=BATCH))
        fixed = dict(zip((each.conversation.seed for each in self.asked), self.ids, strict=True))
        llm._end_ids = frozenset()
        llm._sessions.prompt = lambda request: fixed[request.conversation.seed]  # type: ignore[method-assign]
        answers = await asyncio.gather(*(llm.complete(each) for each in self.asked))
        await llm.aclose()
        return sum(each.usage.completion_tokens for each in answers)

    def generate(self) -> int:
        """`model.generate` on the padded batch."""
        ids = torch.tensor(self.ids)
        with torch.inference_mode():
            out = self.policy.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=N_NEW,
                min_new_tokens=N_NEW,
                eos_token_id=None,
                pad_token_id=0,
            )
        return int(out.shape[0] * (out.shape[1] - N_PROMPT))

    def generate_batch(self) -> int:
        """`model.generate_batch`, continuous batching over a paged cache."""
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=True, top_k=0, max_new_tokens=N_NEW, eos_token_id=-1, pad_token_id=0
        )
        cache = ContinuousBatchingConfig(
            num_blocks=BATCH * (N_PROMPT + N_NEW) // 32 + 64,
            page_size=32,
            max_batch_tokens=2048,
        )
        found: Any = self.policy.model.generate_batch(
            [list(each) for each in self.ids],
            generation_config=config,
            continuous_batching_config=cache,
            progress_bar=False,
        )
        return sum(len(each.generated_tokens) for each in found.values())


def rate(work: Callable[[], int]) -> float:
    """Tokens a cpu-second of one round."""
    gc.collect()
    start = time.process_time()
    return work() / (time.process_time() - start)


def main() -> int:
    """Measure, print, compare."""
    logging.disable(logging.WARNING)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    bench = Bench()
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name in ("ours", "generate", "generate_batch"):
            best[name] = max(best.get(name, 0.0), rate(getattr(bench, name)))
    print(f"batch {BATCH}, tokens a cpu-second: ours {best['ours']:.0f}")
    missed = False
    for name, aim in AIMS.items():
        ratio = best["ours"] / best[name]
        missed |= ratio < aim
        verdict = "MISSED" if ratio < aim else "ok"
        print(f"  {name:15} {best[name]:7.0f}  ratio {ratio:5.2f}  aim {aim}  {verdict}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
