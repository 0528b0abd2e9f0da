"""Eight rollouts that start at an expert's tenth turn: by replay, and by forks of one sandbox.

Run with ``python tests/bench/bench_restoring.py``, or with the name of another sandbox than
bubblewrap and an image, as in ``bench_restoring.py docker python:3.12-slim``. Exit status 1 where
an aim is missed.

The bare operation is the replay. What counts is the time from opening a sandbox to the first
command of a rollout's own, summed over the rollouts: they run one after the other, as many episodes
in one slot do. Eight at once are shown beside it: there replays wait at the same time, and a fork
saves work but no waiting.
"""

import asyncio
import importlib
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from sandboxes import Row, report

from ale.plugin import BuildContext
from ale.protocols import Restoring, SandboxBackend, Start
from ale.types import SandboxSpec
from ale_starts.restoring.scheme import ForkedStarts
from ale_starts.schemes import Initial

ROLLOUTS, TURNS = 8, 10
SLOW, FAST = "sleep 0.2; date >> log", "date >> log"


def backend_of(kind: str, options: dict[str, Any]) -> SandboxBackend | None:
    """A backend that can run here; None where it says why not."""
    plugin = importlib.import_module(f"ale_sandbox_{kind}.plugin")
    (component,) = (one for one in plugin.ale_sandboxes() if one.name == kind)
    found = component.probe()
    if not found.usable:
        print(f"{kind} can't run here: {found.reason}")
        return None
    backend: SandboxBackend = component.build(component.options(**options), BuildContext())
    return backend


class Rollouts:
    """Rollouts of one start, by forks or without."""

    def __init__(self, backend: SandboxBackend, command: str, *, forked: bool) -> None:
        self._backend = backend
        self._command = command
        self._scheme = ForkedStarts(Initial(), 8) if forked else None
        self.ways: list[str] = []

    async def one(self, number: int) -> None:
        """Up to and with the first command of its own."""
        start = Start(task_id="slow", rollouts=ROLLOUTS, name=f"p{TURNS}of{TURNS + 1}")
        restoring = nullcontext() if self._scheme is None else self._scheme.restoring(start)
        async with restoring as way:
            opening = self._backend.open(SandboxSpec())
            async with opening if way is None else way.open(lambda: opening) as box:
                session = await box.session()
                for _ in range(TURNS):
                    await session.run(self._command)
                await self._arrive(way)
                result = await session.run("wc -l < log")
                assert result.stdout.strip() == b"%d" % TURNS, result

    async def _arrive(self, way: Restoring | None) -> None:
        if way is not None:
            await way.expert_finished()
            self.ways.append(" ".join(way.facts.values()))

    async def all_of_them(self, at_once: bool) -> float:
        """Seconds for all rollouts."""
        begun = time.perf_counter()
        if at_once:
            await asyncio.gather(*(self.one(number) for number in range(ROLLOUTS)))
        else:
            for number in range(ROLLOUTS):
                await self.one(number)
        return time.perf_counter() - begun

    async def close(self) -> None:
        """Let go of what is kept."""
        if self._scheme is not None:
            await self._scheme.aclose()


async def compared(
    backend: SandboxBackend, what: str, command: str, aim: float | None, *, at_once: bool = False
) -> Sequence[Row]:
    """Eight rollouts, and in a second row eight more from the state that is then there."""
    bare = await Rollouts(backend, command, forked=False).all_of_them(at_once)
    forked = Rollouts(backend, command, forked=True)
    ours = await forked.all_of_them(at_once)
    again = await forked.all_of_them(at_once)
    await forked.close()
    assert forked.ways.count("fork") == 2 * ROLLOUTS - 1, forked.ways
    shown = "none" if aim is None else f"{aim}x"
    return [
        (what, ours, bare, shown, aim is None or ours <= aim * bare),
        ("  in the next step", again, bare, shown, aim is None or again <= aim * bare),
    ]


async def main() -> int:
    """All of them, as a table; 1 where an aim is missed."""
    kind, *image = sys.argv[1:] or ["bubblewrap"]
    backend = backend_of(kind, {"image": image[0]} if image else {})
    if backend is None:
        return 0
    try:
        rows = [
            *await compared(backend, "8 from turn 10", SLOW, 0.5),
            *await compared(backend, "8 at once", SLOW, None, at_once=True),
        ]
        shown = await compared(backend, "8, quick commands", FAST, None)
    finally:
        await backend.aclose()
    return report(f"restoring, {kind}", [*rows, *shown])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
