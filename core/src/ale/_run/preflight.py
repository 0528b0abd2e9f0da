"""Check sandbox, model, executor and limits before the first episode, so a run fails early."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from typing import Any

from attrs import frozen

from ale._config import RunConfig
from ale._config.auto import listed, not_isolated, refusal
from ale._config.model import MOST_AT_ONCE
from ale._run.episode import sandbox_spec
from ale._run.grading import can_mislead
from ale._run.parts import Parts, Tasks, missing_features
from ale._run.plan import planned_episodes
from ale._run.timeouts import Supervisor
from ale.errors import AleError, InputError, Problem
from ale.protocols import (
    Checkable,
    CheckableBackend,
    CheckableExecutor,
    Criterion,
    ExplainsObjective,
    KnowsWeakness,
    ObjectiveFacts,
    SandboxBackend,
)
from ale.text import counted
from ale.types import CriterionSpec, Task


def isolation_notes(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> list[str]:
    """Notes for the user about the chosen sandbox before the run, one line each.

    Raises:
        InputError: the sandbox does not provide the isolation that ``sandbox.require`` names.
    """
    lacking = not_isolated(backend.capabilities)
    if refused := refusal(lacking, config.require):
        message = f"sandbox '{config.sandbox.name}' {refused}"
        raise InputError.of(message, path="sandbox.require")
    notes = _auto_notes(config, lacking)
    if "network" in lacking:
        notes += _network_notes(config, tasks)
    return notes + _grading_notes(config, backend, tasks) + _weakness_notes(tasks)


def check_tasks(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> None:
    """Check that the sandboxes have the images and the features that tasks need.

    Raises:
        InputError: they do not start from images, and no option ``ignore_image`` of theirs permits
            it; or with every task that requires a feature they lack.
    """
    _check_images(config, backend, tasks)
    problems = [each for task in _all(tasks) for each in missing_features(task, backend)]
    if problems:
        raise InputError(problems)


def _all(tasks: Tasks) -> list[Task]:
    return [ready.task for split in tasks.values() for ready in split]


def _check_images(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> None:
    options = config.sandbox.options
    if backend.capabilities.images or getattr(options, "ignore_image", False):
        return
    found = [
        task
        for task in _all(tasks)
        if task.environment.image is not None or task.environment.build is not None
    ]
    if not found:
        return
    image = found[0].environment.image or found[0].environment.build
    message = (
        f"{_summary([task.id for task in found])} {'need' if found[1:] else 'needs'} an image "
        f"({image}), and sandbox '{config.sandbox.name}' does not start from images"
    )
    own = [note for note in backend.capabilities.notes if note.startswith("images: ")]
    hint = "; ".join(["use docker or podman", *(note.partition(": ")[2] for note in own)])
    if hasattr(options, "ignore_image") and not any(missing_features(t, backend) for t in found):
        hint += "; or set sandbox.ignore_image: true to run with this machine's programs"
    raise InputError.of(message, path="sandbox.type", hint=hint)


def _auto_notes(config: RunConfig, lacking: list[str]) -> list[str]:
    chosen, name = config.sandbox.auto, config.sandbox.name
    if chosen is None:
        return []
    if not lacking:
        return [f"auto: using {name} ({chosen.reason})"]
    skipped = "; ".join(chosen.skipped) or "no other sandbox is installed"
    return [
        f"auto: using {name}, which does not isolate {listed(lacking)} from this machine: {skipped}"
    ]


def _network_notes(config: RunConfig, tasks: Tasks) -> list[str]:
    asking = [
        whole.id
        for whole in _all(tasks)
        if any(task.constraints.network is False for task in (whole, *whole.steps))
    ]
    sources = ["the config"] if getattr(config.sandbox.options, "network", None) is False else []
    if asking:
        sources.append(_summary(asking))
    if not sources:
        return []
    return [
        f"network: false, set by {' and '.join(sources)}, is not enforced: sandbox "
        f"'{config.sandbox.name}' does not isolate the network"
    ]


def _grading_notes(config: RunConfig, backend: SandboxBackend, tasks: Tasks) -> list[str]:
    """The tasks that are graded by programs which the agent can replace."""
    found = [
        (task.id, spec.type)
        for task, spec, criterion in _criteria(tasks)
        if can_mislead(criterion, task, backend.capabilities)
    ]
    if not found:
        return []
    ids = list(dict.fromkeys(id for id, _ in found))
    kinds = ", ".join(sorted({repr(kind) for _, kind in found}))
    are = "are" if len(ids) > 1 else "is"
    return [
        f"{_summary(ids)} {are} graded by {kinds} in the sandbox in which the agent works, "
        f"and its commands can replace the programs of '{config.sandbox.name}': a wrong result can "
        "pass"
    ]


def _weakness_notes(tasks: Tasks) -> list[str]:
    """The ways to pass that criteria know of themselves, each with the tasks that have it."""
    found: dict[tuple[str, str], list[str]] = {}
    for task, spec, criterion in _criteria(tasks):
        if isinstance(criterion, KnowsWeakness) and (how := criterion.weakness(task)):
            found.setdefault((spec.type, how), []).append(task.id)
    return [f"{_summary(ids)}: {kind}: {how}" for (kind, how), ids in found.items()]


def _criteria(tasks: Tasks) -> Iterator[tuple[Task, CriterionSpec, Criterion]]:
    for split in tasks.values():
        for whole in split:
            for ready in whole.steps or (whole,):
                for spec, criterion in ready.criteria:
                    yield ready.task, spec, criterion


def _summary(ids: list[str]) -> str:
    return f"{counted(len(ids), 'task')} ({ids[0]}{', ...' * (len(ids) > 1)})"


_OWN = 200
"""Descriptors of the run itself: its files, its connections, the event loop."""
_EACH = 3
"""Descriptors of an episode whose backend says nothing: connections to a service and a model."""


@frozen
class _Limit:
    """A limit of the operating system, and what episodes take of it."""

    what: str
    flag: str
    """Option of ``ulimit``."""
    resource: int
    each: int
    own: int
    """Without episodes."""

    def most(self) -> int:
        """Most episodes at once."""
        import resource  # imported here: stored runs are read on systems that lack it

        _, hard = resource.getrlimit(self.resource)
        endless = hard == resource.RLIM_INFINITY or not self.each
        return MOST_AT_ONCE if endless else max(1, (hard - self.own) // self.each)

    def problems(self, concurrency: int) -> Iterator[Problem]:
        """Why so many can't run at once; a soft limit is raised where needed."""
        import resource

        needed = concurrency * self.each + self.own
        soft, hard = resource.getrlimit(self.resource)
        if soft == resource.RLIM_INFINITY or soft >= needed:
            return
        if hard == resource.RLIM_INFINITY or hard >= needed:
            resource.setrlimit(self.resource, (needed, hard))
            return
        most = self.most()
        yield Problem(
            path="run.concurrency",
            message=f"{concurrency} episodes at once may need {needed} {self.what} "
            f"({self.each} each), and this process may have {hard}",
            expected=f"at most {most}",
            hint=f"run.concurrency={most}; or raise the limit: ulimit {self.flag} {needed}",
        )


def _system_limits(sandbox: Any) -> Iterator[_Limit]:
    import resource

    each = getattr(sandbox, "descriptors", 0) + _EACH
    yield _Limit("open files", "-n", resource.RLIMIT_NOFILE, each, _OWN)
    if os.geteuid() != 0:  # the kernel does not count root's processes
        yield _Limit("processes", "-u", resource.RLIMIT_NPROC, getattr(sandbox, "processes", 0), 0)


def limit_problems(concurrency: int, sandbox: Any) -> Iterator[Problem]:
    """Why so many episodes can't run at once in this process. Soft limits are raised where needed.

    Args:
        concurrency: number of episodes that run at once.
        sandbox: the backend. Its attributes `descriptors` and `processes` say what one of its
            sandboxes needs at most, where it opens files or starts processes here.
    """
    for limit in _system_limits(sandbox):
        yield from limit.problems(concurrency)


def most_possible(sandbox: Any) -> int:
    """Number of episodes that can run at once in this process, as `limit_problems` counts.

    Soft limits are raised to what these may need.
    """
    most = min(MOST_AT_ONCE, *(limit.most() for limit in _system_limits(sandbox)))
    for limit in _system_limits(sandbox):
        list(limit.problems(most))
    return most


CHECK_S = 25.0
"""Seconds for the check of a model: a little more than its client's own limits (10 for the list of
models, 10 for one token), as the client's error names the URL."""
_HINT = "run.preflight: false skips this check, as does ale run --no-checks"


def is_complete(config: RunConfig, tasks: Tasks, n_done: int) -> bool:
    """Whether a run with this number of stored episodes is known to need no more."""
    planned = planned_episodes(config, tasks)
    return planned is not None and n_done >= sum(planned.values())


async def preflight(config: RunConfig, parts: Parts, tasks: Tasks, n_done: int = 0) -> None:
    """Check the model, those of scorers, the executor, and the image of the first task's sandbox,
    concurrently; and the limits of this process for as many episodes as run at once.

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

    models: list[tuple[str, object]] = [("llm", parts.llm)]
    models += [(f"scorers[{i}]", scorer) for i, (_, scorer) in enumerate(parts.scorers)]
    checks = [
        problem(section, model.check(), CHECK_S)
        for section, model in models
        if isinstance(model, Checkable)
    ]
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
        least = 1 if config.run.concurrency == "auto" else config.run.concurrency
        yield from limit_problems(least, parts.sandbox)


def explain(parts: Parts, rollouts: int) -> ObjectiveFacts | None:
    """The trainer's facts about its objective; None without a trainer that can tell."""
    if parts.credit is None or not isinstance(parts.trainer, ExplainsObjective):
        return None
    return parts.trainer.explain_objective(parts.credit, rollouts)


def idle_notes(facts: ObjectiveFacts | None) -> Iterator[str]:
    """One note about the parts that can't act; none if each can."""
    if facts is None:
        return
    by_reason: dict[str, list[str]] = {}
    for part in facts.parts:
        if part.idle:
            by_reason.setdefault(part.idle, []).append(part.name)
    if not by_reason:
        return
    named = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
    reduced = f". What is left is {facts.reduces_to}" if facts.reduces_to else ""
    yield f"of the objective {facts.name} never act here: {named}{reduced}"
