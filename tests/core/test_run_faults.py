"""Plugins that misbehave: each breaks its own episode, or is refused before anything starts."""

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from ale._run.crediting import Crediting
from ale._run.run import Run
from ale._run.session import Observers
from ale._run.start import check_resumed, check_run, resume
from ale.errors import InputError, PluginError, SandboxError, StoreError
from ale.plugin import hookimpl
from ale.protocols import AgentContext
from ale.recording import Recording
from ale.testing.builders import trajectory, turn
from ale.testing.credit import group_of, rollout
from ale.testing.fakes import FakeChunker, FolderBackend
from ale.types import (
    Batch,
    Credit,
    CriterionSpec,
    Environment,
    Group,
    Limits,
    SandboxSpec,
    Score,
    Stop,
    Task,
    replace,
)

from .conftest import episodes, failure_of

Finish = Callable[[Run], Any]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(0)])
@pytest.mark.parametrize("where", ["agent", "criterion", "sandbox"])
async def test_a_part_that_cancels_itself_or_exits_breaks_its_episode_and_no_other(
    bench: Any, workplace: Any, finish: Finish, error: BaseException, where: str
) -> None:
    async def agent(context: AgentContext) -> Stop:
        if where == "agent" and context.task.id == "t1":
            raise error
        await context.sandbox.write("done", context.task.id.encode())
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        if where == "criterion" and await sandbox.read("done") == b"t1":
            raise error
        return Score(criterion="done", passed=True, value=1.0)

    async def open_hook(spec: SandboxSpec) -> None:
        if where == "sandbox" and spec.tags["episode"] == "0-t1-0":
            raise error

    bench.agent, bench.grade, bench.open_hook = agent, grade, open_hook
    run = workplace.prepared(workplace.config(n=8, retries=0))
    finished = await finish(run)
    assert (finished.n_graded, finished.n_broken) == (7, 1)
    assert type(error).__name__ in failure_of(run, "t1").message


async def test_an_exception_of_a_grader_names_its_criterion_and_its_line(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    async def grade(sandbox: Any) -> Score:
        return Score(criterion="done", passed=True, value=json.loads("{"))

    bench.grade = grade
    run = workplace.prepared(workplace.config(n=1, retries=0))
    await finish(run)
    found = failure_of(run)
    assert (found.stage, found.kind) == ("grading", "JSONDecodeError")
    line = grade.__code__.co_firstlineno + 1
    spec = run.tasks["train"][0].criteria[0][0].type
    assert found.message.endswith(f" (criterion '{spec}', {__file__}:{line})"), found.message


async def test_a_sandbox_that_does_not_open_in_time_breaks_its_episode(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    async def open_hook(spec: SandboxSpec) -> None:
        if spec.tags["episode"] == "0-t0-0":
            await asyncio.sleep(60)

    bench.open_hook = open_hook
    run = workplace.prepared(workplace.config(n=2, open_timeout_s=0.2, retries=0, preflight=False))
    finished = await asyncio.wait_for(finish(run), 30)
    assert (finished.n_graded, finished.n_broken) == (1, 1)
    assert "the sandbox did not open" in failure_of(run, "t0").message


async def test_a_part_that_ignores_its_cancellation_does_not_block_the_run(
    bench: Any, workplace: Any, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale._run.timeouts.CLEANUP_S", 0.2)
    released = asyncio.Event()

    async def grade(sandbox: Any) -> Score:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return Score(criterion="done", passed=True, value=1.0)

    bench.grade = grade
    run = workplace.prepared(workplace.config(grading_timeout_s=0.2, retries=0))
    finished = await finish(run)
    assert finished.n_broken == 1
    assert "was cancelled after 0.2 s and did not end" in failure_of(run).message
    assert len(run.supervisor.abandoned) == 1
    released.set()


async def test_an_agent_that_ignores_its_time_limit_is_not_graded(
    bench: Any, workplace: Any, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale._run.timeouts.CLEANUP_S", 0.2)
    monkeypatch.setattr("ale._run.agent.GRACE_S", 0.1)

    async def agent(context: AgentContext) -> Stop:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    bench.agent, bench.limits = agent, Limits(time_limit_s=0.1)
    run = workplace.prepared(workplace.config(retries=0))
    assert (await finish(run)).n_broken == 1
    assert "did not end" in failure_of(run).message


@pytest.mark.parametrize("rubbish", ["not a turn", replace(turn("x"), duration_s="long")])
async def test_an_invalid_record_breaks_the_episode_and_not_the_run(
    bench: Any, workplace: Any, finish: Finish, rubbish: Any
) -> None:
    async def agent(context: AgentContext) -> Stop:
        if context.task.id == "t0":
            context.recorder.append(rubbish)
        return Stop(reason="finished")

    bench.agent = agent
    run = workplace.prepared(workplace.config(n=3, retries=0))
    finished = await finish(run)
    assert (finished.n_graded, finished.n_broken) == (2, 1)
    assert len(episodes(run)) == 3


async def test_a_chunker_that_fails_is_named_and_the_episodes_stay(
    bench: Any, workplace: Any, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split(self: Any, trajectory: Any) -> Any:
        raise ZeroDivisionError("no chunks today")

    monkeypatch.setattr(type(workplace.prepared(workplace.config()).parts.chunker), "split", split)
    run = workplace.prepared(workplace.config(n=2))
    with pytest.raises(PluginError, match="chunker 'interaction' failed on 0-t0-0") as caught:
        await finish(run)
    assert "no chunks today" in str(caught.value)
    assert len(episodes(run)) == 2
    manifest = json.loads((run.store.path / "manifest.json").read_text())
    assert manifest["outcome"]["outcome"] == "failed"


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda right: None, "returned None, expected a list of Chunk"),
        (lambda right: [(0, 1)], r"returned \[\(0, 1\)\], expected a list of Chunk"),
        (lambda right: [], "chunks of 0-t0-0 are no partition: not every turn is covered"),
        (lambda right: right[1:], "are no partition"),
        (lambda right: [*right, *right], "are no partition"),
        (lambda right: [replace(c, index=9) for c in right], "are not numbered from 0"),
    ],
)
async def test_chunks_that_are_no_partition_are_refused(
    workplace: Any, finish: Finish, monkeypatch: pytest.MonkeyPatch, split: Any, message: str
) -> None:
    chunker = type(workplace.prepared(workplace.config()).parts.chunker)
    right = chunker.split
    monkeypatch.setattr(chunker, "split", lambda *given: split(right(*given)))
    run = workplace.prepared(workplace.config())
    with pytest.raises(PluginError, match=f"chunker 'interaction'.* {message}"):
        await finish(run)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("def ale_episode_finish(self, event): ...", "did you mean 'ale_episode_finished'"),
        ("def ale_episode_finished(self, evnt): ...", "expected (event)"),
        ("async def ale_episode_finished(self, event): ...", "would never be awaited"),
    ],
)
def test_an_observer_without_valid_event_hooks_is_refused(
    registry: Any, workplace: Any, method: str, message: str
) -> None:
    scope: dict[str, Any] = {"hookimpl": hookimpl}
    exec(f"class Deaf:\n    @hookimpl\n    {method}", scope)
    registration = workplace.registry.find("observer", "console")
    deaf = evolve(registration.component, build=lambda options, context: scope["Deaf"]())
    config = workplace.config()
    listening = evolve(config.observers[0], registration=evolve(registration, component=deaf))
    with pytest.raises(InputError, match=re.escape(message)):
        check_run(evolve(config, observers=(listening,)), "test", workplace.outside())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "/runs/tb"), r" OSError: .* '/runs/tb'$"),
        (StoreError("/runs/x can't be opened"), r" StoreError: /runs/x can't be opened$"),
        (ValueError("a mistake"), r"\nTraceback (.*\n)*ValueError: a mistake\n$"),
    ],
)
def test_a_failing_observer_is_reported_by_its_name_with_what_helps(
    workplace: Any, error: Exception, said: str
) -> None:
    class Tracker:
        @hookimpl
        def ale_run_finished(self) -> None:
            raise error

    reports: list[str] = []
    observers = Observers([("tensorboard", Tracker())], workplace.registry, reports.append)
    observers.notify("ale_run_finished", None)
    observers.notify("ale_run_finished", None)
    (report,) = reports
    start = "observer 'tensorboard' failed in ale_run_finished and was dropped:"
    assert re.match(re.escape(start) + said, report)


def test_a_part_whose_build_fails_is_named_with_its_package(workplace: Any) -> None:
    def build(options: Any, context: Any) -> Any:
        raise OSError("no such device")

    config = workplace.config()
    registration = config.agent.registration
    broken = evolve(registration, component=evolve(registration.component, build=build))
    with pytest.raises(InputError, match="agent 'bench' of ale-bench failed to build") as caught:
        check_run(
            evolve(config, agent=evolve(config.agent, registration=broken)),
            "t",
            workplace.outside(),
        )
    assert "no such device" in str(caught.value)


def test_a_weight_that_is_not_above_0_is_refused(bench: Any, workplace: Any) -> None:
    bench.tasks = lambda n: [
        Task(id="t", goal="g", criteria=(CriterionSpec(type="done", weight=0.0),))
    ]
    with pytest.raises(InputError, match="expected a weight above 0, found 0"):
        check_run(workplace.config(), "test", workplace.outside())


def test_a_task_that_holds_a_secret_is_refused(bench: Any, workplace: Any) -> None:
    bench.tasks = lambda n: [
        Task(id="t", goal="use hunter2hunter2", criteria=(CriterionSpec(type="done"),))
    ]
    workplace = evolve(workplace, environ={"DB_PASSWORD": "hunter2hunter2"})
    with pytest.raises(InputError, match="task 't' contains the value of the variable DB_PASSWORD"):
        check_run(workplace.config(), "test", workplace.outside())


async def test_a_moved_run_is_resumed_under_its_own_name(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(workplace.config(n=2))
    moved = run.store.path.parent / "elsewhere and renamed"
    run.store.path.rename(moved)
    again = resume(moved, workplace.outside())
    assert again.context.run_id == run.context.run_id
    assert (await finish(again)).n_graded == 2


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            Environment(image="debian:13"),
            "2 tasks (t0, ...) need an image (debian:13), and",
        ),
        (Environment(requires=("switch-user",)), "task 't1' requires of its sandbox: switch-user"),
    ],
)
async def test_a_resumed_run_is_refused_by_a_sandbox_that_lacks_what_tasks_need(
    bench: Any,
    workplace: Any,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
    environment: Environment,
    message: str,
) -> None:
    make = bench.tasks
    bench.tasks = lambda n: [evolve(task, environment=environment) for task in make(n)]
    has = replace(FolderBackend.capabilities, images=True, features=("switch-user",))
    lacks = FolderBackend.capabilities
    monkeypatch.setattr(FolderBackend, "capabilities", has)
    run = workplace.prepared(workplace.config(n=2))
    run.store.close()
    path = run.store.path
    monkeypatch.setattr(FolderBackend, "capabilities", lacks)
    with pytest.raises(InputError, match=re.escape(message)):
        await check_resumed(resume(path, workplace.outside()))
    monkeypatch.setattr(FolderBackend, "capabilities", has)
    await finish(await check_resumed(resume(path, workplace.outside())))
    monkeypatch.setattr(FolderBackend, "capabilities", lacks)  # nothing is left to do in it
    await finish(await check_resumed(resume(path, workplace.outside())))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SandboxError("401"), "sandbox 'folder' could not prune: 401"),
        (RuntimeError("401"), "sandbox 'folder' could not prune:\nTraceback"),
    ],
)
async def test_a_backend_that_can_not_prune_says_why(
    workplace: Any,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    message: str,
) -> None:
    async def prune(backend: Any) -> Any:
        raise error

    monkeypatch.setattr(FolderBackend, "prune", prune)
    said: list[str] = []
    run = workplace.prepared(workplace.config(n=1), report=said.append)
    assert (await finish(run)).n_graded == 1
    (first,) = [each for each in said if "prune" in each]
    assert first.startswith(message)
    assert ("Traceback" in first) == ("Traceback" in message)


def test_a_recorded_run_is_no_run_to_resume_and_says_what_continues_it(workplace: Any) -> None:
    host = workplace.outside()
    config = {"llm": {"type": "ale-proxy/proxy"}, "chunker": {"type": "interaction"}}
    Recording(workplace.directory / "recorded", config, host.registry).close()
    with pytest.raises(InputError) as caught:
        resume(workplace.directory / "recorded", host)
    (problem,) = caught.value.problems
    assert "were recorded by ale-proxy/proxy, not sampled by 'ale run'" in problem.message
    assert "give this directory as --run" in (problem.hint or "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("garbage}", "JSON is malformed"),
        ('{"at": 1}', "missing required field `event`"),
        ('{"event": "run_started", "at": "x"}', "at: Expected `float`, got `str`"),
        ('{"event": "step_finished", "at": 1}', "missing required field `step`"),
        ('{"event": "evaluation_finished", "at": 1, "step": []}', "step: Expected `int`"),
    ],
)
async def test_a_damaged_event_is_found_before_a_resumed_run_starts(
    workplace: Any, line: str, message: str
) -> None:
    run = await workplace.ran(workplace.config(n=1))
    events = run.store.path / "events.jsonl"
    damaged = f"{events.read_text()}{line}\n"
    events.write_text(damaged)
    with pytest.raises(InputError, match=rf"events\.jsonl:3: .*{message}"):
        resume(run.store.path, workplace.outside())
    assert events.read_text() == damaged


def test_runs_that_start_in_the_same_second_have_names_of_their_own(workplace: Any) -> None:
    paths = {check_run(workplace.config(), "t", workplace.outside()).path for _ in range(20)}
    # Of 65,536 names, two of 20 are the same in 3 of 1,000 tests, and two pairs in 4 of a million.
    assert len(paths) > 18


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"rewards": ()},
            "0-demo-0 has 1 chunks, and its credit by s has 0 rewards, 1 returns and 1 weights",
        ),
        ({"rewards": (1.0, 1.0), "returns": ()}, "has 2 rewards, 0 returns and 1 weights"),
        ({"weights": (math.nan,)}, "credit scheme 's' returned is wrong: .* is not finite"),
    ],
)
def test_a_credit_that_does_not_fit_its_chunks_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    made = rollout(1.0, trajectory(turn("x")), 0)
    ones = {name: (1.0,) * len(made.chunks) for name in ("rewards", "returns", "weights")}
    credit = Credit(episode_id=made.episode.id, scheme="s", **{**ones, **fields})
    scheme = type("Scheme", (), {"assign": lambda _, group: [credit]})()
    crediting = Crediting(chunker=FakeChunker(), chunker_name="c", scheme=scheme, scheme_name="s")
    with pytest.raises(PluginError, match=message):
        crediting.assign(group_of([made]))


@pytest.mark.parametrize("returned", [None, [1.0]])
def test_what_is_no_list_of_credits_is_refused(returned: Any) -> None:
    class Wrong:
        def assign(self, group: Group) -> Any:
            return returned

    crediting = Crediting(chunker=FakeChunker(), chunker_name="c", scheme=Wrong(), scheme_name="s")
    with pytest.raises(PluginError, match=r"'s' returned .*, expected a list of Credit"):
        crediting.assign(group_of([rollout(1.0, trajectory(turn("x")), 0)]))


async def test_a_trainer_that_returns_no_report_is_named(workplace: Any, finish: Finish) -> None:
    class Mute:
        async def step(self, batch: Batch) -> None:
            """Forgets its report."""

    run = workplace.prepared(workplace.config())
    run = evolve(run, parts=evolve(run.parts, trainer=Mute()))
    with pytest.raises(PluginError, match=r"trainer .*Mute returned None, expected a StepReport"):
        await finish(run)
