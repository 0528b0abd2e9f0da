"""Parts for runs of a second, found by the processes of a grid like those of any package."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import AleError, SandboxError
from ale.plugin import BuildContext, Component, doc, ge, hookimpl
from ale.protocols import AgentContext, Sandbox
from ale.testing.builders import task, turn
from ale.testing.fakes import FakeChunker, FakeCreditScheme, FolderBackend
from ale.types import (
    Credit,
    CriterionSpec,
    Group,
    Limits,
    Score,
    Stop,
    Task,
    Trajectory,
)


@frozen(kw_only=True)
class Options:
    """Of all of these parts, so that one test's config is short."""

    number: int = field(default=2, validator=ge(1), metadata=doc("Tasks."))
    skill: float = field(default=1.0, validator=ge(0), metadata=doc("Probability of success."))
    seconds: float = field(default=0.0, validator=ge(0), metadata=doc("That an episode takes."))
    wait_for: Path | None = field(default=None, metadata=doc("Go on when this file is there."))


class Tasks:
    def __init__(self, options: Options) -> None:
        self.options = options

    def load(self) -> Iterable[Task]:
        for i in range(self.options.number):
            yield task(f"t{i}", criteria=(CriterionSpec(type="answered"),))


class Lucky:
    """Succeeds with a probability, decided by the episode's seed alone."""

    limits = Limits(max_turns=5, time_limit_s=600)

    def __init__(self, options: Options) -> None:
        self.options = options

    async def run(self, context: AgentContext) -> Stop:
        await asyncio.sleep(self.options.seconds)
        wanted = self.options.wait_for
        while wanted and not wanted.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        if random.Random(context.conversation.seed).random() < self.options.skill:
            await context.sandbox.write("answer", b"42")
        context.recorder.append(turn("I have tried."))
        return Stop(reason="finished")


class Breaking(Lucky):
    """Every other episode breaks; without skill, every one."""

    async def run(self, context: AgentContext) -> Stop:
        if context.conversation.seed % 2 or not self.options.skill:
            raise SandboxError("the machine is gone")
        return await super().run(context)


class Answered:
    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        found = await sandbox.exec("cat answer")
        passed = found.stdout == b"42"
        return Score(criterion="answered", passed=passed, value=float(passed))


class Failing(FakeCreditScheme):
    def assign(self, group: Group) -> Sequence[Credit]:
        raise AleError("no credit <today> & never")


def _part(name: str, make: Callable[[Any], Any]) -> Component[Any, Any]:
    def build(options: Options, context: BuildContext) -> Any:
        return make(options)

    return Component(name, Options, build, summary="Of a test.", priority=1)


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, Any]]:
    return [_part("few", Tasks)]


@hookimpl
def ale_sandboxes() -> Sequence[Component[Any, Any]]:
    return [_part("folder", lambda _: FolderBackend())]


@hookimpl
def ale_agents() -> Sequence[Component[Any, Any]]:
    return [_part("lucky", Lucky), _part("breaking", Breaking)]


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Any]]:
    return [Component("answered", None, lambda o, c: Answered(), summary="The answer is there.")]


@hookimpl
def ale_chunkers() -> Sequence[Component[Any, Any]]:
    return [_part("turns", lambda _: FakeChunker())]


@hookimpl
def ale_credit_schemes() -> Sequence[Component[Any, Any]]:
    return [
        _part("same", lambda _: FakeCreditScheme()),
        _part("alike", lambda _: FakeCreditScheme()),
        _part("failing", lambda _: Failing()),
    ]
