"""Train a policy on episodes that come from elsewhere, for as long as they come.

For programs such as `ale loop`. The run is one of ``run.schedule: stream`` whose groups are given
to it instead of being sampled; crediting, training, checkpoints and evaluation are those of
`ale run`. It is stored, continued and read like any other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

from ale._config import load_config
from ale._front import carry_out
from ale._registry import Registry
from ale._run.incoming import (
    ORIGIN,
    Learner,
    Origin,
    check_executor,
    check_learning,
    conducted,
    origins,
)
from ale._run.interrupt import Interrupt
from ale._run.start import Host, check_resumed, check_run, resume, start_checked
from ale._store import RunReader
from ale._store.codec import plain
from ale.errors import InputError
from ale.types import RunFinished

__all__ = ["ORIGIN", "Learner", "Origin", "check_learns", "learn", "origins"]

_FIXED = {
    "schedule": "stream",
    "on_sigterm": "drain",
    "stop_after_broken": "null",
    "keep_checkpoints": "null",
}
"""Options of section ``run`` that are always these: what to keep, the caller decides."""


def learn(
    config: Path,
    directory: Path,
    registry: Registry,
    conduct: Callable[[Learner], Awaitable[str]],
    *,
    overrides: Sequence[str] = (),
    report: Callable[[str], None] = print,
    clocks: Mapping[str, Any] | None = None,
    check: Callable[[Mapping[str, Any]], None] = lambda config: None,
) -> RunFinished:
    """Train the policy of a config on what `conduct` gives the learner.

    The first Ctrl-C, or a SIGTERM, lets what is running end (`Learner.draining`), the second
    cancels it.

    Args:
        config: a config of `ale run`, with a trainer, an evaluation, ``run.tasks_per_step`` (groups
            of a step) and ``run.rollouts`` (episodes of a group). Its tasks are not run.
        directory: of the run. One that exists is continued, with its saved config.
        conduct: is called once, with the first policy loaded; returns the run's outcome.
        overrides: as for ``--set``.
        report: shows a message to the user.
        clocks: ``clock``, ``monotonic`` and ``new_id``, in place of the machine's.
        check: gets the whole config as plain values, before anything is built; may raise
            `InputError`.

    Raises:
        InputError: with every problem of the config; or the directory is that of another run.
        StoreError: another process writes to the directory, or the disk is full.
    """
    interrupt = Interrupt(show=report)
    host = Host(registry=registry, interrupt=interrupt, report=report, clocks=clocks or {})
    if (directory / "manifest.json").exists():
        check_learns(directory)
        check(RunReader(directory).manifest["config"])
        starting = check_resumed(resume(directory, host, given=True))
    else:
        fixed = [f"run.{name}={value}" for name, value in _FIXED.items()]
        loaded = load_config(config, registry, [*overrides, *fixed])
        check_learning(loaded)
        check(plain(loaded.resolved))
        ready = evolve(check_run(loaded, config.stem, host, directory), given=True)
        check_executor(loaded, ready.parts)
        for note in ready.notes:
            report(note)
        starting = start_checked(ready, host)

    async def go() -> RunFinished:
        _, finished = await carry_out(starting, lambda run: evolve(run, conduct=conducted(conduct)))
        return finished

    return asyncio.run(go())


def check_learns(directory: Path) -> None:
    """Check that a stored run is one of `learn`.

    Raises:
        InputError: it samples its episodes or records them, or there is no run.
    """
    found = RunReader(directory).manifest["config"].get("run", {})
    if any(found.get(name) != _FIXED[name] for name in ("schedule", "on_sigterm")):
        message = "this run was not started to learn from episodes that come from elsewhere"
        raise InputError.of(message, file=str(directory), hint="choose another directory")
