"""What handing new weights to the model that samples costs, as a share of a training step.

One process and thread, the tiny policy of the defaults (about a million parameters). A step is what
a run does: tasks' prompts sampled through the component ``policy``, one update by the trainer
``policy`` on the answers, and `load_policy` with the trainer's snapshot. CPU seconds, the median of
several steps after a first one; a later step samples from the weights that were handed over. Both
ways within one process: the same model (``sync: same``), and a copy (``sync: copy``). Exit status 1
where the sync takes more than 1% of a step.

    python tests/bench/bench_weight_sync.py [steps]
"""

import asyncio
import sys
import time
from statistics import median
from typing import Any

import torch

from ale.plugin import BuildContext
from ale.testing.builders import conversation
from ale.types import (
    Batch,
    BatchStatistics,
    Chunk,
    Completion,
    CompletionRequest,
    Credit,
    CreditedGroup,
    Episode,
    Group,
    Message,
    Rollout,
    Span,
    Trajectory,
    Turn,
)
from ale_llm_policy.build import wrap_policy
from ale_llm_policy.options import PolicyOptions as SamplerOptions
from ale_llm_policy.pretrained import TinyShape, tiny_policy
from ale_trainer_policy.options import PolicyOptions
from ale_trainer_policy.plugin import ale_trainers

TASKS = 16
ROLLOUTS = 4
N_NEW = 32
MAX_EPISODES = 0.01
"""Largest share of a step that the sync may take."""


async def sampled(llm: Any, step: int) -> Batch:
    """A batch of answers, good and bad ones in turn."""
    groups = []
    for task in range(TASKS):
        text = f"task {task}: count the lines of the files of this folder and write a report. " * 3
        asked = [
            CompletionRequest(
                messages=(Message(role="user", content=text),),
                conversation=conversation(seed=1000 * step + 10 * task + rollout),
                turn=0,
            )
            for rollout in range(ROLLOUTS)
        ]
        groups.append(asyncio.gather(*(llm.complete(each) for each in asked)))
    answers = await asyncio.gather(*groups)
    return Batch(step=step, groups=tuple(credited(i, group) for i, group in enumerate(answers)))


def credited(task: int, answers: list[Completion]) -> CreditedGroup:
    """The answers as episodes of one chunk each."""
    rollouts, credits = [], []
    for number, answer in enumerate(answers):
        assert answer.tokens is not None
        reward, name = float(number % 2), f"{task}-{number}"
        turn = Turn(completion=answer, fresh_context=True)
        episode = Episode(
            id=name,
            task_id=str(task),
            rollout=number,
            reward=reward,
            trajectory=Trajectory(turns=(turn,)),
        )
        n_calls = len(answer.message.tool_calls)
        span = Span(
            turn=0,
            text=(0, len(answer.message.content)),
            calls=(0, n_calls),
            tokens=(0, len(answer.tokens.output_ids)),
        )
        chunk = Chunk(index=0, kind="message", spans=(span,))
        rollouts.append(Rollout(episode=episode, chunks=(chunk,)))
        weight = (2.0 * reward - 1.0,)
        credits.append(
            Credit(episode_id=name, scheme="bench", rewards=weight, returns=weight, weights=weight)
        )
    statistics = BatchStatistics(n_episodes=len(answers), mean_reward=0.5)
    group = Group(task_id=str(task), rollouts=tuple(rollouts), batch=statistics)
    return CreditedGroup(group=group, credits=tuple(credits))


async def measured(sync: Any, steps: int) -> dict[str, float]:
    """Median CPU seconds of the parts of a step."""
    sampler = SamplerOptions(max_tokens=N_NEW, max_batch=TASKS * ROLLOUTS)
    llm = wrap_policy(tiny_policy(None, TinyShape(), seed=0), sampler)
    component = next(one for one in ale_trainers() if one.name == "policy")
    trainer = component.build(PolicyOptions(sync=sync, lr=1e-4), BuildContext())
    trainer.attach(llm)
    spent: dict[str, list[float]] = {"sampling": [], "training": [], "sync": []}
    for step in range(steps + 1):
        times = [time.process_time()]
        batch = await sampled(llm, step)
        times.append(time.process_time())
        report = await trainer.step(batch)
        times.append(time.process_time())
        await llm.load_policy(trainer.snapshot())
        times.append(time.process_time())
        assert llm.policy_version == report.policy_version == step + 1
        for part, before, after in zip(spent, times, times[1:], strict=False):
            spent[part].append(after - before)
    await llm.aclose()
    return {part: median(seconds[1:]) for part, seconds in spent.items()}


def main() -> int:
    """Measure and print; 1 where an aim is missed."""
    torch.set_num_threads(1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    answers = f"{TASKS * ROLLOUTS} answers of up to {N_NEW} tokens"
    print(f"{answers}, one update; median of {steps} steps")
    print(f"{'':12}{'sampling':>10}{'training':>10}{'sync':>10}   share of the step")
    met = True
    for sync in ("same", "copy"):
        found = asyncio.run(measured(sync, steps))
        share = found["sync"] / sum(found.values())
        met = met and share <= MAX_EPISODES
        row = "".join(f"{seconds:9.4f}s" for seconds in found.values())
        verdict = "ok" if share <= MAX_EPISODES else "MISSED"
        print(f"sync: {sync:6}{row}   {100 * share:.2f}%  <= {100 * MAX_EPISODES:g}%  {verdict}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
