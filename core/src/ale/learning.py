"""Train a policy on episodes that come from elsewhere, for as long as they come.

For programs such as `ale loop`. The run is one of ``run.schedule: stream`` whose groups are given
to it instead of being sampled; crediting, training, checkpoints and evaluation are those of
`ale run`. It is stored, continued and read like any other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
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
from ale._run.manifest import changes, described
from ale._run.run import ENDED_EARLY, Run
from ale._run.start import (
    Host,
    check_resumed,
    check_run,
    close_parts,
    resume,
    saved_config,
    start_checked,
)
from ale._store import RunReader
from ale._store.codec import plain
from ale.errors import InputError
from ale.types import RunFinished

__all__ = ["ENDED_EARLY", "ORIGIN", "Learner", "Origin", "check_learns", "learn", "origins"]

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
        directory: of the run. One that exists is continued, with its saved config; if `config`,
            where it still is, differs only in what a resume may change (`run.budget`, addresses,
            retries), with that.
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
    fixed = [f"run.{name}={value}" for name, value in _FIXED.items()]
    if (directory / "manifest.json").exists():
        check_learns(directory)
        check(RunReader(directory).manifest["config"])
        starting = _continued(directory, host, config, [*overrides, *fixed])
    else:
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


def _continued(
    directory: Path, host: Host, config: Path, overrides: Sequence[str]
) -> Coroutine[Any, Any, Run]:
    """Open a stored run, and say what is changed of its config, or not used of the one given."""
    now, said = None, f"{directory} continues with its saved config"
    try:
        now = load_config(config, host.registry, overrides) if config.is_file() else None
    except InputError as error:
        host.report(f"{said}; {config} is not used, and is not valid:\n{error}")
    if now is not None:
        made = changes(saved_config(RunReader(directory), host.registry), now)
        refused = [f"  not used: {described(each)}" for each in made if not each.allowed]
        if refused:
            host.report("\n".join([f"{said}, from which {config} differs", *refused]))
    run = resume(directory, host, given=True, config_now=now)
    for each in run.changes:
        host.report(f"changed: {described(each)}")

    async def checked() -> Run:
        try:
            check_executor(run.config, run.parts)
        except BaseException:
            run.store.close()
            await close_parts(run.parts, run.supervisor, run.report)
            raise
        return await check_resumed(run)

    return checked()


def check_learns(directory: Path) -> None:
    """Check that a stored run is one of `learn`.

    Raises:
        InputError: it samples its episodes or records them, or there is no run.
    """
    found = RunReader(directory).manifest["config"].get("run", {})
    if any(found.get(name) != _FIXED[name] for name in ("schedule", "on_sigterm")):
        message = "this run was not started to learn from episodes that come from elsewhere"
        raise InputError.of(message, file=str(directory), hint="choose another directory")
