"""Builds the model that proposes, asks it, and closes it."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from ale.plugin import BuildContext
from ale.runs import Registry, build_choice, parse_choice
from ale_middleware.skills.proposing import Proposed, propose
from ale_middleware.skills.store import Store


def run_propose(
    registry: Registry,
    runs: Sequence[Path],
    store: Path,
    llm: str,
    *,
    below: float,
    most: int,
    details: bool,
    say: Callable[[str], None],
) -> None:
    """Propose, and print what was added and what was left out.

    Raises:
        InputError: the model can't be built, or a run can't be read.
        LLMError: the model gave no answer.
    """
    context = BuildContext(environ=dict(os.environ))
    _, model = build_choice(parse_choice(llm, option="--llm"), "llm", registry, context)

    async def work() -> Proposed:
        async with aclosing(model):
            return await propose(runs, opened, model, below=below, most=most, details=details)

    with Store(store, create=True) as opened:
        made = asyncio.run(work())
    for skill in made.added:
        say(f"{skill.id}  {skill.text}")
    say(f"{len(made.added)} added")
    for reason, n in sorted(made.left_out.items()):
        say(f"{n} left out: {reason}")
