"""A small workshop: real commands in real folders, and a policy that learns backwards."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

import ale_starts.plugin
from ale._config import structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import Host, check_run, closing_parts, start
from ale.plugin import Component, hookimpl
from ale.protocols import LLM, AgentContext, Sandbox
from ale.strict import from_plain
from ale.testing.builders import task
from ale.testing.fakes import FakeChunker, FakeCreditScheme, FakePolicy, FolderBackend, ManualClock
from ale.testing.starts import TOOLS
from ale.types import (
    Batch,
    CompletionRequest,
    CriterionSpec,
    Limits,
    Message,
    Observation,
    PolicySnapshot,
    Score,
    StepReport,
    Stop,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    replace,
)

SOLUTION = ("mkdir w", "echo one > w/a", "tr a-z A-Z < w/a > w/b; cat w/b")


def make_task(task_id: str = "upper", **fields: Any) -> Task:
    """Three dependent commands."""
    return task(task_id, solution=SOLUTION, criteria=(CriterionSpec(type="upper"),), **fields)


class Backwards(FakePolicy):
    """Knows the last `known` commands of the solution, and does nothing where it knows none."""

    def __init__(self) -> None:
        super().__init__(self._say)
        self.known = 0

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        await super().load_policy(snapshot)
        self.known = (snapshot.weights or {"known": 0})["known"]

    def _say(self, request: CompletionRequest) -> Message:
        at = request.turn
        if at >= len(SOLUTION):
            return called(at, "finish", summary="Done.")
        knows = at >= len(SOLUTION) - self.known
        return called(at, "shell", command=SOLUTION[at] if knows else "true")


def called(turn: int, tool: str, **arguments: str) -> Message:
    """An answer that is one call."""
    call = ToolCall(id=f"call_{turn}_0", name=tool, arguments=json.dumps(arguments))
    return Message(role="assistant", tool_calls=(call,))


class Teacher:
    """Teaches one more command in every step in which a rollout of the policy's own succeeded."""

    def __init__(self) -> None:
        self.version, self.known = 0, 0

    def attach(self, llm: LLM | None) -> None: ...

    async def step(self, batch: Batch) -> StepReport:
        episodes = [r.episode for group in batch.groups for r in group.group.rollouts]
        self.version += 1
        self.known += any(episode.reward == 1.0 for episode in episodes)
        return StepReport(step=batch.step, policy_version=self.version)

    def snapshot(self) -> PolicySnapshot:
        return PolicySnapshot(version=self.version, weights={"known": self.known})

    def save(self, directory: Path) -> None:
        (directory / "state").write_text(json.dumps([self.version, self.known]))

    def load(self, directory: Path) -> None:
        self.version, self.known = json.loads((directory / "state").read_text())


class Talker:
    """Asks the model until it calls `finish`, five times at most."""

    limits = Limits(max_turns=5, time_limit_s=60)

    async def run(self, context: AgentContext) -> Stop:
        goal = Message(role="user", content=context.task.goal)
        messages: tuple[Message, ...] = (goal,)
        for number in range(5):
            request = CompletionRequest(
                messages=messages,
                tools=TOOLS,
                conversation=context.conversation,
                turn=number,
                fresh_context=number == 0,
            )
            completion = await context.llm.complete(request)
            (call,) = completion.message.tool_calls
            seen = await self._run(call, context.sandbox)
            context.recorder.append(
                Turn(
                    prompt=(goal,) if number == 0 else (),
                    fresh_context=number == 0,
                    completion=completion,
                    observations=(seen,),
                )
            )
            messages = (*messages, completion.message, seen.as_message())
            if call.name == "finish":
                return Stop(reason="finished")
        return Stop(reason="max_turns")

    async def _run(self, call: ToolCall, sandbox: Sandbox) -> Observation:
        seen = Observation(call_id=call.id, tool=call.name, content="")
        if call.name == "finish":
            return replace(seen, content="finished")
        result = await sandbox.exec(json.loads(call.arguments)["command"])
        content = f"{result.stdout.decode()}[exit code {result.exit_code}]"
        return replace(seen, content=content, exit_code=result.exit_code)


class Upper:
    """The file is there, in upper case."""

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        result = await sandbox.exec("cat w/b")
        passed = result.stdout == b"ONE\n"
        return Score(criterion="upper", passed=passed, value=float(passed))


def _part(name: str, make: Callable[[], Any]) -> Component[Any, Any]:
    return Component(name, None, lambda options, context: make(), summary="Of a test.", priority=1)


class Shop:
    """The parts beside the start schemes."""

    def __init__(self) -> None:
        self.tasks: Sequence[Task] = [make_task()]
        self.models: list[Backwards] = []
        self.answer: Callable[[CompletionRequest], Message] | None = None
        """In place of what the policy knows."""

    def _model(self) -> Backwards:
        self.models.append(Backwards())
        if self.answer is not None:
            self.models[-1]._answer = self.answer
        return self.models[-1]

    @hookimpl
    def ale_task_sources(self) -> Sequence[Component[Any, Any]]:
        return [_part("list", lambda: type("S", (), {"load": lambda _: self.tasks})())]

    @hookimpl
    def ale_sandboxes(self) -> Sequence[Component[Any, Any]]:
        return [_part("folder", FolderBackend)]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        return [_part("backwards", self._model)]

    @hookimpl
    def ale_agents(self) -> Sequence[Component[Any, Any]]:
        return [_part("talker", Talker)]

    @hookimpl
    def ale_criteria(self) -> Sequence[Component[Any, Any]]:
        return [_part("upper", Upper)]

    @hookimpl
    def ale_chunkers(self) -> Sequence[Component[Any, Any]]:
        return [_part("turns", FakeChunker)]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        return [_part("same", FakeCreditScheme)]

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [_part("teacher", Teacher)]


@frozen(kw_only=True)
class Workplace:
    """Configures and prepares runs of the shop's parts with this package's schemes."""

    shop: Shop
    registry: Registry = field(repr=False)
    directory: Path

    def outside(self) -> Host:
        """Still clocks and a quiet report."""
        clocks = {"clock": ManualClock(), "monotonic": ManualClock(0.0)}
        return Host(registry=self.registry, report=lambda _: None, clocks=clocks)

    def prepared(
        self, starts: dict[str, Any], *, agent: str = "talker", trains: bool = True, **run: Any
    ) -> Run:
        """A run with these starts, which trains or samples only."""
        plain: dict[str, Any] = {
            "tasks": {"type": "list"},
            "llm": {"type": "backwards"},
            "agent": {"type": agent},
            "chunker": {"type": "turns"},
            "credit": {"type": "same"},
            "trainer": {"type": "teacher"},
            "observers": [],
            "starts": starts,
            "run": {"directory": str(self.directory), **run},
        }
        for section in () if trains else ("chunker", "credit", "trainer"):
            del plain[section]
        outside = self.outside()
        config = structure_config(from_plain(plain), self.registry)
        return start(check_run(config, "test", outside), outside)


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """The shop, and the package under test as it is installed."""
    shop, registry = Shop(), Registry()
    registry.add(shop, "ale-shop", "1.0")
    registry.add(ale_starts.plugin, "ale-starts", "1.0")
    assert not registry.failed
    return Workplace(shop=shop, registry=registry, directory=tmp_path / "runs")


@pytest.fixture
def finish() -> Callable[[Run], Any]:
    """Run to the end and close."""

    async def finished(run: Run) -> Any:
        async with closing_parts(run):
            return await run.execute()

    return finished


@pytest.fixture
def another_task() -> Callable[..., Task]:
    """Makes a task like the shop's."""
    return make_task
