"""Starts a loop, and restores a version of one."""

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import evolve

from ale.errors import AleError, InputError, Problem
from ale.learning import ENDED_EARLY, Learner, learn
from ale.plugin import BuildContext
from ale.processes import announced
from ale.protocols import Policy
from ale.runs import Registry, RunReader, build_choice, check_choice, holder, load_plugins
from ale.strict import Node
from ale_loop.intake import Intake
from ale_loop.options import LoopConfig, read_config
from ale_loop.record import answered, ask
from ale_loop.service import Service
from ale_loop.serving import Serving, check_servers

_LOOK_S = 0.1


def run(
    path: Path,
    registry: Registry,
    report: Callable[[str], None],
    *,
    clocks: Mapping[str, Any] | None = None,
) -> int:
    """Run the loop of a config until Ctrl-C or SIGTERM.

    Args:
        clocks: as of `ale.learning.learn`.

    Returns:
        The exit status: 0 after a signal, 128 and its number after the second one; 4 or 5 as of
        `ale run`.

    Raises:
        InputError: with every problem of the config.
        StoreError: it runs already, or the disk is full.
    """
    return _open(path, registry, report, Service.run, clocks)


def restore(
    path: Path, version: int, registry: Registry, report: Callable[[str], None], wait_s: float
) -> None:
    """Deploy a version: ask the loop that runs, or do it where none does.

    Args:
        wait_s: how long a loop that runs may take to answer.

    Raises:
        InputError: with every problem of the config.
        AleError: it can't be deployed, or the loop has not answered in time; it will yet.
    """
    directory = read_config(path, started=True).options.directory
    if holder(directory) is None:
        error = _restored(path, version, registry, report)
    else:
        error = _asked(directory, version, wait_s)
    if error:
        raise AleError(error)
    report(f"version {version} is deployed")


def _asked(directory: Path, version: int, wait_s: float) -> str:
    request = ask(directory, version)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        found = answered(directory)
        if found is not None and found.id == request.id:
            return found.error
        time.sleep(_LOOK_S)
    return (
        f"the loop has not answered within {wait_s:g} s; it deploys version {version} when it has "
        "ended what it does, or when it is started again"
    )


def _restored(path: Path, version: int, registry: Registry, report: Callable[[str], None]) -> str:
    found: list[str] = []

    async def conduct(service: Service) -> str:
        await service.begin()
        ask(service.options.directory, version)  # in place of what an earlier command has asked for
        found.append(await service.restore_asked())
        return "drained"

    _open(path, registry, report, conduct, None)
    return found[0]


def _open(
    path: Path,
    registry: Registry,
    report: Callable[[str], None],
    conduct: Callable[[Service], Awaitable[str]],
    clocks: Mapping[str, Any] | None,
) -> int:
    config = read_config(path)
    options = config.options
    ended_by: list[int | None] = []

    async def go(learner: Learner) -> str:
        policy = _policy(config, registry)
        try:
            service = Service(
                options=options,
                learner=learner,
                intake=Intake(paths=options.episodes, own=options.directory, report=report),
                serving=Serving(policy=policy, report=report),
                report=report,
            )
            with announced("loop", directory=options.directory):
                return await conduct(service)
        finally:
            ended_by.append(learner.signal)
            if policy is not None:
                await policy.aclose()

    def check(train: Mapping[str, Any]) -> None:
        if config.serve is None:
            return
        if (options.directory / "manifest.json").exists():
            load_plugins(RunReader(options.directory), registry)
        check_choice(config.serve, "llm", registry, path="serve")
        check_servers(config.serve, train)

    finished = learn(
        options.train, options.directory, registry, go, report=report, clocks=clocks, check=check
    )
    (number,) = ended_by
    if number is not None:
        return 128 + number if finished.outcome == "cancelled" else 0
    return ENDED_EARLY.get(finished.outcome, 0)


def _policy(config: LoopConfig, registry: Registry) -> Policy | None:
    """The component of the section ``serve``, with the id of the run: its servers know it by this.

    Raises:
        InputError: it can't be built, or has no weights that could be changed.
    """
    if config.serve is None:
        return None
    directory = config.options.directory
    manifest = RunReader(directory).manifest
    context = BuildContext(
        seed=manifest["config"]["run"]["seed"],
        run_id=str(manifest["run_id"]),
        run_directory=directory.absolute(),
        created=datetime.fromisoformat(manifest["created"]).timestamp(),
        environ=dict(os.environ),
    )
    try:
        name, made = build_choice(config.serve, "llm", registry, context)
    except InputError as error:
        problems = [_in_serve(each, config.serve) for each in error.problems]
        raise InputError(problems) from error
    if not isinstance(made, Policy):
        message = f"the weights of '{name}' can't be changed"
        expected = "a model whose servers take weights, such as {type: servers}"
        raise InputError.of(message, path="serve", expected=expected)
    return made


def _in_serve(problem: Problem, serve: Node) -> Problem:
    """A problem of a model, which a run has in its section ``llm``, where this config has it."""
    section, _, key = (problem.path or "llm").partition(".")
    if section != "llm" or problem.file is not None:
        return problem
    at = serve.get(key.partition(".")[0]) or serve
    path = f"serve.{key}" if key else "serve"
    return evolve(problem, path=path, file=at.file, line=at.line)
