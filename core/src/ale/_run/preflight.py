"""Check model, executor and sandbox before the first episode, so that a run fails early."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from ale._config import RunConfig
from ale._run.limits import limit_problems
from ale._run.loop import planned_episodes
from ale._run.parts import Parts, Tasks
from ale._run.task_setup import sandbox_spec
from ale._run.timeouts import Supervisor
from ale.errors import AleError, InputError, Problem
from ale.protocols import Checkable, CheckableBackend, CheckableExecutor

CHECK_S = 25.0
"""Seconds for the check of a model: a little more than its client's own limits (10 for the list of
models, 10 for one token), as the client's error names the URL."""
_HINT = "run.preflight: false skips this check, as does ale run --no-checks"


def is_complete(config: RunConfig, tasks: Tasks, n_done: int) -> bool:
    """Whether a run with this number of stored episodes is known to need no more."""
    planned = planned_episodes(config, tasks)
    return planned is not None and n_done >= sum(planned.values())


async def preflight(config: RunConfig, parts: Parts, tasks: Tasks, n_done: int = 0) -> None:
    """Check the model, the executor, and the image of the first task's sandbox, concurrently; and
    the limits of this process for as many episodes as run at once.

    If episodes leave this process, sandboxes are opened elsewhere and not checked here.

    Components without a check are not checked, nor is a run that already has all its episodes.

    Args:
        n_done: number of stored episodes.

    Raises:
        InputError: with the problems of all of them.
    """
    if not config.run.preflight or is_complete(config, tasks, n_done):
        return
    supervisor = Supervisor()

    async def problem(
        section: str, check: Coroutine[Any, Any, None], limit_s: float
    ) -> Problem | None:
        try:
            await supervisor.run(check, limit_s, f"the check of section '{section}'")
        except AleError as error:
            return Problem(message=str(error), path=section, hint=_HINT)
        return None

    checks = []
    if isinstance(parts.llm, Checkable):
        checks.append(problem("llm", parts.llm.check(), CHECK_S))
    if isinstance(parts.executor, CheckableExecutor):
        checks.append(problem("executor", parts.executor.check(), CHECK_S))
    if isinstance(parts.sandbox, CheckableBackend) and not parts.executor.remote:
        spec = sandbox_spec(tasks["train"][0].task, {})
        checks.append(problem("sandbox", parts.sandbox.check(spec), config.run.open_timeout_s))
    found = await asyncio.gather(*checks)
    problems = [*filter(None, found), *_limits(config, parts)]
    if problems:
        raise InputError(problems)


def _limits(config: RunConfig, parts: Parts) -> Iterator[Problem]:
    if not parts.executor.remote:
        yield from limit_problems(config.run.concurrency, parts.sandbox)
