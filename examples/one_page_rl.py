"""Reinforcement learning on one page: sample, grade, credit, and step on a loss of your own.

python examples/one_page_rl.py    # a tiny policy learns to write vowels, in seconds on a CPU
"""

import asyncio
import sys
from statistics import mean

import torch

import ale
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.runs import Registry, build_choice
from ale.strict import from_plain
from ale.types import (
    Batch,
    BatchStatistics,
    CompletionRequest,
    Conversation,
    CreditedGroup,
    Episode,
    Message,
    Rollout,
    Turn,
)

ROLLOUTS, STEPS = 16, 15
TASKS = [ale.Task(id=f"write-{word}", goal=word) for word in ("one", "two")]
POLICY = {
    "type": "policy",
    "tiny": {"layers": 1, "width": 32, "heads": 2, "mlp": 64},
    "max_tokens": 12,
}
TRAINER = {"type": "policy", "objective": {"type": "clipped", "clip": 0.2}, "lr": 0.03, "epochs": 2}


def grade(text: str) -> float:
    """The share of vowels."""
    return sum(text.count(vowel) for vowel in "aeiou") / max(1, len(text))


@ale.credit
def above_mean(group: ale.Group, *, scale: float = 4.0) -> list[list[float]]:
    """The reward above the group's mean, for each chunk of a rollout."""
    middle = mean(each.episode.reward or 0.0 for each in group.rollouts)
    return [
        [scale * ((each.episode.reward or 0.0) - middle) for _ in each.chunks]
        for each in group.rollouts
    ]


@ale.objective
def clipped(
    tokens: ale.Tokens,
    logp: torch.Tensor,
    old_logp: torch.Tensor,
    entropy: None,
    *,
    clip: float = 0.2,
) -> torch.Tensor:
    """PPO's surrogate: a sum over tokens, whose weights are divided by the batch's size already."""
    ratio = torch.where(tokens.weight != 0, logp - old_logp, 0.0).exp()
    bounded = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * tokens.weight, bounded * tokens.weight).sum()


async def sample(llm: LLM, task: ale.Task, step: int, number: int) -> Episode:
    """One episode: a question, an answer, and its reward."""
    name = f"{step}-{task.id}-{number}"
    asked = (Message(role="user", content=task.goal),)
    seed = step * len(TASKS) * ROLLOUTS + TASKS.index(task) * ROLLOUTS + number
    conversation = Conversation(episode_id=name, task_id=task.id, rollout=number, seed=seed)
    request = CompletionRequest(messages=asked, conversation=conversation, turn=0)
    completion = await llm.complete(request)
    turn = Turn(prompt=asked, fresh_context=True, completion=completion)
    return Episode(
        id=name,
        task_id=task.id,
        step=step,
        rollout=number,
        reward=grade(completion.message.content),
        trajectory=ale.Trajectory(turns=(turn,)),
    )


async def learn(seed: int = 0, steps: int = STEPS) -> list[float]:
    """The mean reward of each step."""
    registry = Registry.installed()
    registry.add(sys.modules[__name__], "one-page")  # the decorated functions above
    context = BuildContext(seed=seed)

    def made(kind: str, **choice: object) -> object:
        return build_choice(from_plain(choice), kind, registry, context)[1]

    llm, trainer = made("llm", **POLICY), made("trainer", **TRAINER)
    chunker, credit = made("chunker", type="interaction"), made("credit", type="above_mean")
    trainer.attach(llm)
    rewards = []
    for step in range(steps):
        wanted = [sample(llm, task, step, n) for task in TASKS for n in range(ROLLOUTS)]
        episodes = await asyncio.gather(*wanted)
        rewards.append(mean(each.reward for each in episodes))
        facts = BatchStatistics(n_episodes=len(episodes), mean_reward=rewards[-1])
        groups = []
        for task in TASKS:
            own = [each for each in episodes if each.task_id == task.id]
            rollouts = [Rollout(episode=e, chunks=chunker.split(e.trajectory)) for e in own]
            group = ale.Group(task_id=task.id, rollouts=tuple(rollouts), batch=facts)
            groups.append(CreditedGroup(group=group, credits=tuple(credit.assign(group))))
        await trainer.step(Batch(step=step, groups=tuple(groups)))
        await llm.load_policy(trainer.snapshot())
        text = episodes[0].turns[0].completion.message.content
        print(f"step {step:2}: reward {rewards[-1]:.2f}, for example {text!r}")
    await llm.aclose()
    return rewards


if __name__ == "__main__":
    found = asyncio.run(learn())
    print(f"vowels: {found[0]:.0%} at first, {found[-1]:.0%} after {len(found) - 1} steps")
