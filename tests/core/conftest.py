"""A workshop: one plugin whose parts a test can bend, and a way to run it in this process."""

import asyncio
import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from ale._config import RunConfig, structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import Host, check_run, closing_parts, start
from ale.plugin import Component, doc, ge, hookimpl
from ale.protocols import AgentContext, Sandbox
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.fakes import FakeChunker, FakeCreditScheme, FolderBackend, ManualClock
from ale.testing.sandbox import probes
from ale.types import (
    CriterionSpec,
    Episode,
    Failure,
    Limits,
    RunFinished,
    SandboxSpec,
    Score,
    Stop,
    Task,
    Trajectory,
)


@frozen(kw_only=True)
class ListOptions:
    """Tasks that a test made."""

    n: int = field(default=1, validator=ge(1), metadata=doc("How many."))


@frozen(kw_only=True)
class AgentOptions:
    """An agent that a test wrote."""

    key_env: str | None = field(default=None, metadata=doc("Name of a variable."))


@frozen(kw_only=True)
class CreditOptions:
    """A credit scheme's only option."""

    gamma: float = field(default=1.0, validator=ge(0), metadata=doc("Not used."))


AgentBody = Callable[[AgentContext], Any]


async def write_done(context: AgentContext) -> Stop:
    """Leave a file, as the criterion wants it."""
    context.recorder.append(turn("done", calls=[("shell", '{"command": "touch done"}')]))
    await context.sandbox.write("done", b"")
    return Stop(reason="finished")


class FakePlugin:
    """The plugin. Its attributes are what the parts do."""

    def __init__(self) -> None:
        self.agent: AgentBody = write_done
        self.limits = Limits(time_limit_s=60)
        self.tasks: Callable[[int], Iterable[Task]] = make_tasks
        self.events: list[tuple[str, Any]] = []
        self.open_hook: Callable[[SandboxSpec], Any] = lambda spec: None
        self.grade: Callable[[Sandbox], Any] | None = None
        self.uses_sandbox = self.needs_workspace = True

    async def run(self, context: AgentContext) -> Stop:
        made: Stop = await self.agent(context)
        return made

    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, Any]]:
        def build(options: ListOptions, _: Any) -> Any:
            source = type("Source", (), {"load": lambda _: self.tasks(options.n)})
            return source()

        return [Component("list", ListOptions, build, summary="Tasks of a test.")]

    @hookimpl
    def ale_sandboxes(self) -> Sequence[Component[Any, Any]]:
        bench = self

        class Backend(FolderBackend):
            @asynccontextmanager
            async def open(self, spec: SandboxSpec) -> AsyncIterator[Any]:
                await _maybe(bench.open_hook(spec))
                async with super().open(spec) as sandbox:
                    yield sandbox

        return [Component("folder", None, lambda o, c: Backend(), summary="A folder.", priority=1)]

    @hookimpl
    def ale_agents(self) -> Sequence[Component[Any, Any]]:
        def build(options: AgentOptions, _: Any) -> Any:
            return self

        return [
            Component("bench", AgentOptions, build, summary="A test's agent."),
            Component("needy", None, build, summary="Wants a model.", needs=("llm",)),
        ]

    @hookimpl
    def ale_criteria(self) -> Sequence[Component[Any, Any]]:
        bench = self

        class Done:
            needs_workspace = self.needs_workspace

            async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
                if bench.grade is not None:
                    made: Score = await _maybe(bench.grade(sandbox))
                    return made
                result = await sandbox.exec("test -e done")
                passed = result.exit_code == 0
                return Score(criterion="done", passed=passed, value=float(passed), detail="file")

        return [Component("done", None, lambda o, c: Done(), summary="A file is there.")]

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [Component("interaction", None, lambda o, c: FakeChunker(), summary="By turn.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        return [
            Component("ipa", CreditOptions, _credit, summary="The reward to all."),
            Component("even", None, _credit, summary="The same."),
        ]

    @hookimpl
    def ale_observers(self) -> Sequence[Component[Any, Any]]:
        return [Component("console", None, lambda o, c: Listener(self.events), summary="A list.")]


def _credit(options: Any, context: Any) -> FakeCreditScheme:
    return FakeCreditScheme(name="even")


async def _maybe(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


class Listener:
    def __init__(self, events: list[tuple[str, Any]]) -> None:
        self.events = events

    @hookimpl
    def ale_run_started(self, event: Any) -> None:
        self.events.append(("started", event))

    @hookimpl
    def ale_episode_finished(self, event: Any) -> None:
        self.events.append(("episode", event))

    @hookimpl
    def ale_run_finished(self, event: Any) -> None:
        self.events.append(("finished", event))


def make_tasks(n: int) -> Iterable[Task]:
    """Tasks `t0`, `t1`, ... with one criterion."""
    for i in range(n):
        yield Task(id=f"t{i}", goal="Leave a file.", criteria=(CriterionSpec(type="done"),))


@pytest.fixture(autouse=True)
def _folder_stays() -> Iterator[None]:
    """A test that leaves another current folder makes others fail, far from it."""
    before = Path.cwd()
    yield
    assert Path.cwd() == before


@pytest.fixture
def bench() -> FakePlugin:
    """The plugin, to be bent."""
    return FakePlugin()


@pytest.fixture
def registry(bench: FakePlugin) -> Registry:
    """A registry with that plugin alone."""
    made = Registry()
    made.add(bench, "ale-bench", "1.0")
    assert not made.failed
    return made


@frozen(kw_only=True)
class Workplace:
    """Configures, prepares and runs."""

    registry: Registry
    directory: Path
    environ: Mapping[str, str] = field(factory=dict)

    def config(self, n: int = 1, agent: Mapping[str, Any] | None = None, **run: Any) -> RunConfig:
        """`n` tasks, and options of the section ``run``; all checkpoints are kept."""
        plain = {
            "tasks": {"type": "list", "n": n},
            "agent": {"type": "bench", **(agent or {})},
            "run": {"directory": str(self.directory), "keep_checkpoints": None, **run},
        }
        return structure_config(from_plain(plain), self.registry)

    def outside(self, **changes: Any) -> Host:
        """Still clocks and a quiet report."""
        clocks = {"clock": ManualClock(), "monotonic": ManualClock(0.0)}
        given = {"report": lambda _: None, "clocks": clocks, "environ": self.environ, **changes}
        return Host(registry=self.registry, **given)

    def prepared(self, config: RunConfig, **changes: Any) -> Run:
        """A run with its directory."""
        outside = self.outside(**changes)
        return start(check_run(config, "test", outside), outside)

    async def ran(self, config: RunConfig, **changes: Any) -> Run:
        """A run that has come to its end."""
        run = self.prepared(config, **changes)
        await finish(run)
        return run


@pytest.fixture
def workplace(registry: Registry, tmp_path: Path) -> Workplace:
    """A place to run the bench."""
    return Workplace(registry=registry, directory=tmp_path / "runs")


def episodes(run: Run) -> dict[str, Episode]:
    """The episodes of a run by task."""
    return {episode.task_id: episode for episode in run.store.reader.episodes}


def failure_of(run: Run, task_id: str = "t0") -> Failure:
    """Why the episode of a task broke."""
    failure = episodes(run)[task_id].failure
    assert failure is not None
    return failure


async def finish(run: Run) -> RunFinished:
    """Run to the end and close the parts."""
    async with closing_parts(run):
        return await run.execute()


@pytest.fixture(name="finish")
def finish_fixture() -> Callable[[Run], Any]:
    """Run to the end and close the parts."""
    return finish


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A wrong sandbox leaves processes behind: end those that came of this test's own folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    while found := [pid for pid in map(int, _numbers()) if _came_of(pid, tmp_path)]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    gc.collect()  # while its warnings are still this test's


def _numbers() -> list[str]:
    return [entry.name for entry in Path("/proc").glob("[0-9]*")]


def _came_of(pid: int, folder: Path) -> bool:
    """Is the folder its working directory, or in its environment?"""
    process = Path(f"/proc/{pid}")
    try:
        variables = (process / "environ").read_bytes()  # of a zombie, nothing
        where = (process / "cwd").readlink()
    except OSError:
        return False
    return where.is_relative_to(folder) or bytes(folder) + b"/" in variables


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that hangs fails soon."""
    monkeypatch.setattr(probes, "TIMEOUT_S", 2.0)
