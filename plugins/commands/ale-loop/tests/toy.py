"""A plugin file: a policy that is one number, a trainer that moves it, and servers that are a file.

The number is what the policy answers; a held-out task is solved by a number that is high enough. A
step adds the mean weight of its episodes' chunks, less one half.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ale.errors import AleError, InputError, LLMError, StoreError
from ale.plugin import BuildContext, Component, doc, hookimpl
from ale.protocols import AgentContext, RunningRun, Workers
from ale.testing.fakes import FakeChunker, FakeCreditScheme, FakePolicy, FolderBackend
from ale.types import (
    Batch,
    CompletionRequest,
    CriterionSpec,
    Limits,
    Message,
    PolicySnapshot,
    RunStarted,
    Score,
    StepReport,
    Stop,
    Task,
    Turn,
)


class Number(FakePolicy):
    """Answers with its number at temperature 0, and with a tenth less else."""

    def __init__(self) -> None:
        super().__init__(self._number)
        self.number = 0.5

    def _number(self, request: CompletionRequest) -> Message:
        if os.environ.get("UNREACHABLE") == "for requests":
            raise LLMError("the model server can't be reached")
        less = 0.0 if request.sampling.temperature == 0 else 0.1
        return Message(role="assistant", content=str(self.number - less))

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Take the number."""
        if os.environ.get("UNREACHABLE") == "for weights":
            raise LLMError("the model server can't be reached")
        if snapshot.weights is not None:
            self.number = snapshot.weights["number"]
        await super().load_policy(snapshot)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def client_options(self) -> Mapping[str, Any]:
        """Other processes could ask it."""
        return {}


class Mover:
    """Keeps the ids of all episodes that the number has been moved by."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"version": 0, "number": 0.5, "learned": []}

    def attach(self, llm: Any) -> None:
        """It needs no model."""

    async def step(self, batch: Batch) -> StepReport:
        """Add the mean weight, less one half."""
        credits = [credit for group in batch.groups for credit in group.credits]
        moved = sum(credit.weights[0] for credit in credits) / len(credits) - 0.5
        origins = [
            rollout.episode.metadata["from"]["episode"]
            for group in batch.groups
            for rollout in group.group.rollouts
        ]
        version = self.state["version"] + bool(moved)
        self.state = {
            "version": version,
            "number": self.state["number"] + moved,
            "learned": [*self.state["learned"], *origins],
        }
        return StepReport(step=batch.step, policy_version=version)

    def snapshot(self) -> PolicySnapshot:
        """The number."""
        return PolicySnapshot(version=self.state["version"], weights={**self.state})

    def save(self, directory: Path) -> None:
        """Write it."""
        (directory / "state.json").write_text(json.dumps(self.state))

    def load(self, directory: Path) -> None:
        """Read it."""
        try:
            self.state = json.loads((directory / "state.json").read_text())
        except ValueError as error:
            raise StoreError(f"{directory} is damaged: {error}") from error


@frozen(kw_only=True)
class FileOptions:
    """Servers that are a file."""

    path: Path = field(metadata=doc("It has the version and the number, a line each time."))
    urls: tuple[str, ...] = field(default=(), metadata=doc("Not used."))
    registry: Path | None = field(default=None, metadata=doc("Not used."))
    adapter: str = field(default="", metadata=doc("Not used."))


class File(Number):
    """Writes what it is given; it is down while there is a file DOWN beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Append a line."""
        if self.path.with_name("DOWN").exists():
            raise LLMError("the servers are down")
        with self.path.open("a") as file:
            file.write(json.dumps([snapshot.version, snapshot.weights["number"]]) + "\n")


class HeldOut:
    """Four tasks, which need 0.2, 0.4, 0.6 and 0.8."""

    def load(self) -> Iterator[Task]:
        """All of them."""
        for tenths in (2, 4, 6, 8):
            criterion = CriterionSpec(type="at-least", options={})
            yield Task(
                id=f"held-out-{tenths}",
                goal="Say a number.",
                criteria=(criterion,),
                metadata={"needs": tenths / 10},
            )


class Asker:
    """Asks once, but not while there is the file that HOLD names."""

    limits = Limits(time_limit_s=60)

    async def run(self, context: AgentContext) -> Stop:
        """One turn."""
        while Path(os.environ.get("HOLD", "/nowhere")).exists():  # noqa: ASYNC110 - a file tells it
            await asyncio.sleep(0.01)
        asked = (Message(role="user", content=context.task.goal),)
        request = CompletionRequest(messages=asked, conversation=context.conversation, turn=0)
        completion = await context.llm.complete(request)
        context.recorder.append(Turn(completion=completion, prompt=request.messages))
        return Stop(reason="finished")


class AtLeast:
    """The last answer is a number that is high enough."""

    async def grade(self, task: Task, trajectory: Any, sandbox: Any) -> Score:
        """1 or 0."""
        said = float(trajectory.turns[-1].completion.message.content)
        if said >= float(os.environ.get("BREAK_FROM", "inf")):
            raise RuntimeError("the grader is broken")
        passed = said >= task.metadata["needs"]
        return Score(criterion="at-least", passed=passed, value=float(passed), detail=str(said))


class Started:
    """Keeps how many episodes a run says that it will have."""

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        (Path(event.directory) / "n_episodes").write_text(str(event.n_episodes))


@hookimpl
def ale_observers() -> Sequence[Component[Any, Any]]:
    return [Component("started", None, lambda o, c: Started(), summary="Keeps a number.")]


@hookimpl
def ale_task_sources() -> Sequence[Component[Any, Any]]:
    return [Component("held-out", None, lambda o, c: HeldOut(), summary="Numbers.")]


@hookimpl
def ale_sandboxes() -> Sequence[Component[Any, Any]]:
    return [Component("folder", None, lambda o, c: FolderBackend(), summary="A folder.")]


@hookimpl
def ale_agents() -> Sequence[Component[Any, Any]]:
    return [Component("asker", None, lambda o, c: Asker(), summary="Asks once.")]


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Any]]:
    return [Component("at-least", None, lambda o, c: AtLeast(), summary="High enough.")]


@hookimpl
def ale_chunkers() -> Sequence[Component[Any, Any]]:
    return [Component("by-turn", None, lambda o, c: FakeChunker(), summary="By turn.")]


@hookimpl
def ale_credit_schemes() -> Sequence[Component[Any, Any]]:
    def build(options: Any, context: BuildContext) -> FakeCreditScheme:
        return FakeCreditScheme(name="even")

    return [Component("even", None, build, summary="The reward.")]


@hookimpl
def ale_llms() -> Sequence[Component[Any, Any]]:
    def servers(options: FileOptions, context: BuildContext) -> File:
        if options.path.name == "unusable":
            raise InputError.of("can't be used", path="llm.path")
        return File(options.path)

    return [
        Component("number", None, lambda o, c: Number(), summary="A number."),
        Component("file", FileOptions, servers, summary="A file."),
    ]


class Elsewhere:
    """Says that it runs episodes in other processes."""

    remote = True

    @asynccontextmanager
    async def open(self, running: RunningRun) -> AsyncIterator[Workers]:
        """It is not asked."""
        raise AleError("it was opened")
        yield


@hookimpl
def ale_executors() -> Sequence[Component[Any, Any]]:
    return [Component("elsewhere", None, lambda o, c: Elsewhere(), summary="Other processes.")]


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Any]]:
    return [Component("mover", None, lambda o, c: Mover(), summary="Moves it.")]
