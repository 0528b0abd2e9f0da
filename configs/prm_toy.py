"""Makes runs of a toy in which the value of each state is known, and a tiny frozen model.

    python configs/prm_toy.py FOLDER [SEED]

A policy turns four keys, one in each step, and two of three are of metal. A chest opens if at
least three of the four were. So V after some steps follows from how many metal keys were turned,
which only reading the steps tells. FOLDER/learn and FOLDER/held-out are runs with values as
`ale data values` counts them, from 32 rollouts of each state; FOLDER/model has random weights.
"""

import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ale.types import Completion, Episode, Message, Task, Trajectory, Turn
from ale.values import EpisodeValues, Measured, Values, write_values
from ale_llm_policy.options import TinyShape
from ale_llm_policy.pretrained.tiny import make_tiny

METAL, OTHER = ("brass", "copper", "iron", "silver"), ("bone", "clay", "glass", "oak")
HOW = ("slowly", "at once", "twice", "again", "with care", "to the left", "to the right", "halfway")
STEPS, NEEDED, RIGHT = 4, 3, 2 / 3
ROLLOUTS, GROUPS, IN_A_GROUP = 32, 10, 8
GOAL = "Turn four keys, so that the chest opens."
SHAPE = TinyShape(layers=2, width=64, heads=2, kv_heads=1, mlp=128, vocabulary=500, context=512)


def value(right: int, left: int) -> float:
    """V with this many metal keys turned, and this many steps left."""
    return math.fsum(
        math.comb(left, n) * RIGHT**n * (1 - RIGHT) ** (left - n)
        for n in range(left + 1)
        if right + n >= NEEDED
    )


def main(folder: Path, seed: int) -> None:
    """Write the model and both runs."""
    texts = [f"I turn the {key} key {how}.\n" for key in (*METAL, *OTHER) for how in HOW]
    model, tokenizer = make_tiny([GOAL, *texts], SHAPE, seed=seed)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for name in ("learn", "held-out"):
        write_run(folder / name, random.Random(f"{name} {seed}"))  # noqa: S311 - not a secret


def write_run(path: Path, chance: random.Random) -> None:
    """A run with its values."""
    made = [
        played(f"chest-{n // IN_A_GROUP}", n % IN_A_GROUP, chance)
        for n in range(GROUPS * IN_A_GROUP)
    ]
    episodes = [episode for episode, _ in made]
    tasks = [Task(id=each, goal=GOAL) for each in sorted({each.task_id for each in episodes})]
    path.mkdir(parents=True, exist_ok=True)
    parts = {"chunker": "message", "credit": "reinforce", "agent": "steps", "sandbox": "local"}
    config = {part: {"type": name} for part, name in parts.items()}
    manifest = {"schema": 1, "run_id": path.name, "n_tasks": len(tasks), "config": config}
    (path / "manifest.json").write_text(json.dumps(manifest))
    for file, lines in (("episodes", episodes), ("tasks", tasks)):
        text = b"".join(msgspec.json.encode(each) + b"\n" for each in lines)
        (path / f"{file}.jsonl").write_bytes(text)
    measured = Measured(rollouts=ROLLOUTS, policy="keys", tokenizer="", sandbox="chest")
    values = {each.episode_id: each for _, each in made}
    write_values(path / "values.jsonl", Values(measured=measured, episodes=values))


def played(task: str, rollout: int, chance: random.Random) -> tuple[Episode, EpisodeValues]:
    """An episode, and how many of the rollouts from each of its states succeeded."""
    rights = [chance.random() < RIGHT for _ in range(STEPS)]
    turns = []
    for i, right in enumerate(rights):
        text = f"I turn the {chance.choice(METAL if right else OTHER)} key {chance.choice(HOW)}."
        said = Completion(message=Message(role="assistant", content=text), finish_reason="stop")
        prompt = Message(role="user", content=GOAL if i == 0 else "Go on.")
        turns.append(Turn(prompt=(prompt,), fresh_context=i == 0, completion=said))
    won = float(sum(rights) >= NEEDED)
    episode = Episode(
        id=f"0-{task}-{rollout}",
        task_id=task,
        rollout=rollout,
        reward=won,
        trajectory=Trajectory(turns=tuple(turns)),
    )
    return episode, counted(episode, rights, chance)


def counted(episode: Episode, rights: Sequence[bool], chance: random.Random) -> EpisodeValues:
    """Rollouts from each state but the last, whose outcome is certain."""
    known = [value(sum(rights[:k]), STEPS - k) for k in range(STEPS)]
    won = [sum(chance.random() < v for _ in range(ROLLOUTS)) for v in known]
    return EpisodeValues(
        episode_id=episode.id,
        task_id=episode.task_id,
        states=tuple(f"{episode.id} {k}" for k in range(STEPS + 1)),
        successes=(*won, int(episode.reward or 0)),
        trials=(*([ROLLOUTS] * STEPS), 1),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
