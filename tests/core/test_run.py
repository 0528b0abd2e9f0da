"""The run: every way an episode can end is a recorded outcome, and others are untouched."""

import asyncio
import json
import math
import re
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from ale._cli.run import summary
from ale._run.interrupt import Interrupt
from ale._run.run import Run
from ale._run.start import check_run, resume
from ale.errors import InputError, LLMError, LLMLostError, SandboxError
from ale.plugin import hookimpl
from ale.protocols import AgentContext
from ale.testing import builders
from ale.testing.builders import turn
from ale.types import (
    Constraints,
    CriterionSpec,
    Limits,
    SandboxSpec,
    Score,
    Stop,
    Task,
)

from .conftest import episodes, failure_of

Finish = Callable[[Run], Any]


async def test_an_episode_is_graded_chunked_and_credited(workplace: Any, finish: Finish) -> None:
    run = workplace.prepared(workplace.config(n=3))
    finished = await finish(run)
    assert (finished.outcome, finished.n_graded, finished.mean_reward) == ("completed", 3, 1.0)
    rows = list(run.store.reader.credits())
    assert [row.credit.weights for row in rows] == [(1.0,)] * 3
    manifest = json.loads((run.store.path / "manifest.json").read_text())
    assert manifest["outcome"]["n_graded"] == 3
    assert manifest["versions"]["ale-bench"] == "1.0"


def test_every_run_has_another_uid_except_deterministic_ones(workplace: Any) -> None:
    def uid(**options: Any) -> str | None:
        manifest: Any = workplace.prepared(workplace.config(**options)).store.reader.manifest
        return manifest.get("uid")

    one, two = uid(name="one"), uid(name="two")
    assert one
    assert two not in (None, one)
    assert uid(name="three", deterministic=True) is None


async def test_an_episode_that_hangs_crashes_or_does_not_open_leaves_the_others_untouched(
    bench: Any, workplace: Any, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale._run.agent.GRACE_S", 0.2)

    async def agent(context: AgentContext) -> Stop:
        if context.task.id == "t0":
            context.recorder.append(turn("about to hang"))
            await asyncio.sleep(1000)
        if context.task.id == "t1":
            raise ZeroDivisionError("a bug")
        if context.task.id == "t3":
            raise LLMError("nonsense")
        await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    def open_hook(spec: SandboxSpec) -> None:
        if spec.tags["episode"] == "0-t2-0":
            raise SandboxError("no room")

    bench.agent, bench.open_hook = agent, open_hook
    bench.limits = Limits(time_limit_s=0.3)
    run = workplace.prepared(workplace.config(n=64, concurrency=64, retries=0))
    finished = await finish(run)
    found = episodes(run)
    assert len(found) == 64
    assert (finished.n_graded, finished.n_broken, finished.n_succeeded) == (61, 3, 60)
    hung = found["t0"]
    assert hung.reward == 0.0
    assert hung.trajectory.stop.reason == "time_limit"
    assert hung.trajectory.turns[0].completion.message.content == "about to hang"
    stages = {
        task_id: e.failure and (e.failure.stage, e.failure.kind) for task_id, e in found.items()
    }
    assert stages["t1"] == ("agent", "ZeroDivisionError")
    assert stages["t2"] == ("sandbox", "SandboxError")
    assert stages["t3"] == ("agent", "LLMError")
    assert "a bug" in failure_of(run, "t1").traceback
    assert all(found[f"t{i}"].reward == 1.0 for i in range(4, 64))


async def test_a_grader_that_crashes_breaks_the_episode_and_gives_no_zero(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    def grade(_: Any) -> Score:
        raise RuntimeError("grader is down")

    bench.grade = grade
    run = workplace.prepared(workplace.config(retries=0))
    finished = await finish(run)
    assert finished.n_broken == 1
    assert episodes(run)["t0"].reward is None
    assert failure_of(run).stage == "grading"


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (None, "not a Score"),
        (0.5, "not a Score"),
        (Score(criterion="done", passed=False, value=1.5), "its value is not in [0, 1]"),
        (Score(criterion="done", passed=False, value=-0.1), "its value is not in [0, 1]"),
        (Score(criterion="done", passed=False, value=math.nan), "its value is not finite"),
        (Score(criterion="done", passed=True, value=0.5), "'passed' is true exactly when"),
        (Score(criterion="done", passed=1, value=1.0), "Expected `bool`, got `int`"),  # type: ignore[arg-type]
        (Score(criterion="done", passed=True, value="1"), "Expected `float`, got `str`"),  # type: ignore[arg-type]
        (Score(criterion="done", passed=False, value=np.float32(math.nan)), "its value is not fin"),  # type: ignore[arg-type]
        (Score(criterion="done", passed=True, value=1.0, detail=b"x"), "Expected `str`, got `by"),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_score_breaks_the_episode_and_the_failure_says_why(
    bench: Any, workplace: Any, finish: Finish, score: Any, reason: str
) -> None:
    bench.grade = lambda _: score
    run = workplace.prepared(workplace.config(retries=0))
    assert (await finish(run)).n_broken == 1
    failure = failure_of(run)
    assert (failure.stage, failure.kind) == ("grading", "GradingError")
    assert f"returned an invalid score: {reason}" in failure.message
    assert failure.message.endswith(repr(score))


@pytest.mark.parametrize("value", [np.float64(0.5), np.float32(0.5), np.int64(1)])
async def test_a_score_may_be_a_number_of_numpy(
    bench: Any, workplace: Any, finish: Finish, value: Any
) -> None:
    bench.grade = lambda _: Score(criterion="done", passed=value == 1, value=value)
    run = workplace.prepared(workplace.config(retries=0))
    assert (await finish(run)).n_broken == 0
    episode = episodes(run)["t0"]
    assert episode.reward == float(value)
    assert episode.scores[0].passed is (float(value) == 1)


async def test_a_criterion_that_is_not_asynchronous_is_named(
    workplace: Any, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = workplace.prepared(workplace.config(retries=0))
    done = Score(criterion="done", passed=True, value=1.0)
    ((_, criterion),) = run.tasks["train"][0].criteria
    monkeypatch.setattr(type(criterion), "grade", lambda *_: done)
    assert (await finish(run)).n_broken == 1
    assert "write 'async def grade'" in failure_of(run).message


@pytest.mark.parametrize("value", [7.0, -0.5])
async def test_a_score_on_a_scale_of_its_own_is_the_reward_and_no_success(
    bench: Any, workplace: Any, finish: Finish, value: float
) -> None:
    bench.grade = lambda _: Score(criterion="done", passed=False, value=value, unbounded=True)
    run = workplace.prepared(workplace.config(retries=0))
    finished = await finish(run)
    assert (finished.n_broken, finished.n_succeeded) == (0, 0)
    assert episodes(run)["t0"].reward == value


async def test_a_score_on_any_scale_is_finite(bench: Any, workplace: Any, finish: Finish) -> None:
    bench.grade = lambda _: Score(
        criterion="done", passed=False, value=float("inf"), unbounded=True
    )
    run = workplace.prepared(workplace.config(retries=0))
    assert (await finish(run)).n_broken == 1


@pytest.mark.parametrize("error", [SandboxError("busy"), LLMLostError("busy")])
async def test_a_broken_episode_is_retried_and_both_failures_are_recorded(
    bench: Any, workplace: Any, finish: Finish, error: Exception
) -> None:
    tries = []

    async def agent(context: AgentContext) -> Stop:
        tries.append(1)
        if len(tries) == 1:
            raise error
        await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    bench.agent = agent
    run = workplace.prepared(workplace.config(retries=1))
    assert (await finish(run)).n_succeeded == 1
    episode = episodes(run)["t0"]
    assert [failure.message for failure in episode.earlier_failures] == ["busy"]


async def test_an_episode_that_the_model_broke_is_not_tried_again(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    tries = []

    async def agent(context: AgentContext) -> Stop:
        tries.append(1)
        raise LLMError("no answer after 6 attempts", transient=True)

    bench.agent = agent
    run = workplace.prepared(workplace.config(retries=5))
    assert (await finish(run)).n_broken == 1
    assert len(tries) == 1


async def test_a_failed_episode_is_never_tried_again(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    tries = []

    async def agent(context: AgentContext) -> Stop:
        tries.append(1)
        return Stop(reason="gave_up")

    bench.agent = agent
    run = workplace.prepared(workplace.config(retries=5))
    finished = await finish(run)
    assert (len(tries), finished.mean_reward, finished.n_broken) == (1, 0.0, 0)


async def test_a_failing_setup_step_breaks_the_episode(bench: Any, workplace: Any) -> None:
    bench.tasks = lambda n: [
        Task(
            id="t0",
            goal="g",
            setup_steps=("echo why; exit 3",),
            criteria=(CriterionSpec(type="done"),),
        )
    ]
    run = await workplace.ran(workplace.config(retries=0))
    failure = failure_of(run)
    assert failure.stage == "setup"
    assert failure.message == "setup step `echo why; exit 3` exited with 3\nwhy"


@pytest.mark.parametrize("unit", [1.0, 5e307, 5e-324])
async def test_the_reward_is_the_weighted_mean_of_the_criteria(
    bench: Any, workplace: Any, finish: Finish, unit: float
) -> None:
    values = iter([1.0, 0.5])
    bench.grade = lambda _: Score(
        criterion="done", value=(value := next(values)), passed=value == 1.0, detail="x"
    )
    bench.tasks = lambda n: [
        Task(
            id="t0",
            goal="g",
            criteria=tuple(CriterionSpec(type="done", weight=each * unit) for each in (3.0, 1.0)),
        )
    ]
    run = workplace.prepared(workplace.config())
    assert (await finish(run)).mean_reward == (3 * 1.0 + 0.5) / 4


async def test_the_stricter_of_task_and_agent_wins(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    seen: list[Limits] = []

    async def agent(context: AgentContext) -> Stop:
        seen.append(context.limits)
        return Stop(reason="finished")

    bench.agent = agent
    bench.limits = Limits(max_steps=5, time_limit_s=30)
    bench.tasks = lambda n: [
        Task(
            id="t0",
            goal="g",
            criteria=(CriterionSpec(type="done"),),
            constraints=Constraints(max_steps=9, time_limit_s=7, max_turns=2),
        )
    ]
    await finish(workplace.prepared(workplace.config()))
    assert seen == [Limits(max_steps=5, max_turns=2, time_limit_s=7)]


async def test_what_the_agent_left_running_ends_before_grading(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    async def agent(context: AgentContext) -> Stop:
        session = await context.sandbox.session()
        await session.run("(sleep 0.3; touch done) &")
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        await asyncio.sleep(0.6)
        result = await sandbox.exec("test -e done")
        passed = result.exit_code == 0
        return Score(criterion="done", passed=passed, value=float(passed), detail="x")

    bench.agent, bench.grade = agent, grade
    run = workplace.prepared(workplace.config())
    assert (await finish(run)).mean_reward == 0.0


async def test_a_grading_that_ran_out_of_time_is_counted(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    bench.grade = lambda _: Score(criterion="done", passed=False, value=0.0, timed_out=True)
    run = workplace.prepared(workplace.config())
    finished = await finish(run)
    assert (finished.n_graded, finished.n_broken) == (1, 0)
    assert run.store.index.timed_out() == 1
    assert "  timed out    1  (a time limit of the grading; graded)" in summary(run, finished, ())


@pytest.mark.parametrize(
    ("contested", "as_what", "mean", "n"),
    [(0.0, "reward", 1.0, 1), (0.0, "failed", 0.0, 1), (None, "failed", 1.0, 0)],
)
async def test_contested_passes_are_counted_whatever_they_count_as(
    bench: Any,
    workplace: Any,
    finish: Finish,
    contested: float | None,
    as_what: str,
    mean: float,
    n: int,
) -> None:
    bench.grade = lambda _: Score(criterion="done", passed=True, value=1.0, contested=contested)
    run = workplace.prepared(workplace.config(contested=as_what))
    finished = await finish(run)
    assert finished.mean_reward == mean
    assert run.store.index.contested() == run.store.reader.index().contested() == n
    said = "a pass that used files the agent changed; what it counts as: run.contested"
    assert (f"  contested    1  ({said})" in summary(run, finished, ())) == bool(n)


@pytest.mark.parametrize(
    ("needs_workspace", "uses_sandbox", "seen"),
    [
        (True, True, ["agent setup", "agent ran setup"]),
        (False, True, ["setup", "setup"]),
        (False, False, ["setup", "setup"]),
    ],
)
async def test_a_criterion_that_needs_no_workspace_is_graded_where_nothing_has_run(
    bench: Any,
    workplace: Any,
    finish: Finish,
    needs_workspace: bool,
    uses_sandbox: bool,
    seen: list[str],
) -> None:
    ids, found = [], []

    async def agent(context: AgentContext) -> Stop:
        ids.append(context.sandbox.id)
        if uses_sandbox:
            await context.sandbox.exec("touch agent")
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        ids.append(sandbox.id)
        found.append(" ".join((await sandbox.exec("ls")).stdout.decode().split()))
        await sandbox.exec("touch ran")
        return Score(criterion="done", passed=True, value=1.0)

    bench.agent, bench.grade = agent, grade
    bench.uses_sandbox, bench.needs_workspace = uses_sandbox, needs_workspace
    spec = CriterionSpec(type="done")
    task = builders.task(setup_steps=("touch setup",), criteria=(spec, spec))
    bench.tasks = lambda n: [task]
    assert (await finish(workplace.prepared(workplace.config()))).mean_reward == 1.0
    assert found == seen
    # The agent's own is taken where nothing has run in it: opening another one has its price.
    assert (
        len(set(ids))
        == {(True, True): 1, (False, True): 3, (False, False): 2}[needs_workspace, uses_sandbox]
    )


async def test_two_runs_with_one_seed_are_the_same_to_the_byte(bench: Any, workplace: Any) -> None:
    async def agent(context: AgentContext) -> Stop:
        context.recorder.append(turn(f"seed {context.conversation.seed}"))
        await asyncio.sleep(context.conversation.seed % 7 / 1000)
        return Stop(reason="finished")

    bench.agent = agent
    lines = []
    for concurrency in (1, 1, 8):
        run = await workplace.ran(
            workplace.config(n=6, rollouts=4, seed=3, concurrency=concurrency)
        )
        stored = (run.store.path / "episodes.jsonl").read_bytes()
        # A folder of the machine, which only --deterministic leaves out.
        lines.append(re.sub(rb'"workdir":"[^"]*"', b"", stored))
    assert lines[0] == lines[1]
    assert sorted(lines[0].splitlines()) == sorted(lines[2].splitlines())
    assert len({line for line in lines[0].splitlines()}) == 24


async def test_each_seed_of_a_run_has_other_seeds_of_episodes_and_another_order(
    bench: Any, workplace: Any
) -> None:
    """Else the seeds of an ablation could all be one run."""

    async def agent(context: AgentContext) -> Stop:
        seeds[-1].add(context.conversation.seed)
        return Stop(reason="finished")

    bench.agent = agent
    seeds: list[set[int]] = []
    orders = set()
    for seed in range(4):
        seeds.append(set())
        run = await workplace.ran(workplace.config(n=8, steps=8, tasks_per_step=1, seed=seed))
        orders.add(tuple(each.task_id for each in run.store.reader.episodes))
    assert len(set.union(*seeds)) == 4 * 8
    assert len(orders) == 4


async def test_a_resumed_run_does_exactly_what_is_missing(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    ran: list[str] = []
    interrupt = Interrupt()

    async def agent(context: AgentContext) -> Stop:
        ran.append(context.conversation.episode_id)
        if len(ran) == 5:
            interrupt.on_interrupt()
        await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    bench.agent = agent
    run = workplace.prepared(workplace.config(n=12, concurrency=2), interrupt=interrupt)
    first = await finish(run)
    assert first.outcome == "drained"
    assert 5 <= first.n_graded <= 6
    assert interrupt.exit_code == 130
    assert not list(run.store.reader.credits())
    again = resume(run.store.path, workplace.outside())
    second = await finish(again)
    assert (second.outcome, second.n_graded) == ("completed", 12)
    assert len(ran) == len(set(ran)) == 12
    assert len(list(again.store.reader.credits())) == 12
    third = await finish(resume(run.store.path, workplace.outside()))
    assert (third.n_graded, len(ran)) == (12, 12)


async def test_a_run_and_its_resume_began_at_the_same_time(workplace: Any, finish: Finish) -> None:
    run = workplace.prepared(workplace.config(n=1))
    began = run.context.created
    assert began is not None
    assert datetime.fromisoformat(run.store.reader.manifest["created"]).timestamp() == began // 1
    run.store.close()
    host = workplace.outside(clocks={"clock": lambda: began + 3 * 86400})
    again = resume(run.store.path, host)
    assert again.context.created == began // 1
    await finish(again)


async def test_an_interrupt_ends_a_run_of_more_episodes_than_memory_holds(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    interrupt = Interrupt()

    async def agent(context: AgentContext) -> Stop:
        interrupt.on_interrupt()
        return Stop(reason="finished")

    bench.agent = agent
    config = workplace.config(n=1, concurrency=1, rollouts=10**12)
    finished = await finish(workplace.prepared(config, interrupt=interrupt))
    assert (finished.outcome, finished.n_graded) == ("drained", 1)


async def test_a_second_interrupt_cancels_and_cleans_up(
    bench: Any, workplace: Any, finish: Finish
) -> None:
    closed: list[str] = []
    interrupt = Interrupt()

    async def agent(context: AgentContext) -> Stop:
        if context.task.id == "t1":
            asyncio.get_running_loop().call_later(0.05, interrupt.on_interrupt)
            asyncio.get_running_loop().call_later(0.1, interrupt.on_interrupt)
        try:
            await asyncio.sleep(100)
        finally:
            closed.append(context.sandbox.workdir)
        return Stop(reason="finished")

    bench.agent = agent
    run = workplace.prepared(workplace.config(n=4, concurrency=4), interrupt=interrupt)
    finished = await finish(run)
    assert (finished.outcome, finished.n_graded, len(closed)) == ("cancelled", 0, 4)
    assert not any(Path(folder).exists() for folder in closed)


def test_sigterm_exits_with_143() -> None:
    interrupt = Interrupt()
    interrupt.on_terminate()
    assert interrupt.exit_code == 128 + signal.SIGTERM == 143


async def test_an_observer_that_fails_is_dropped_and_harms_nothing(
    registry: Any, workplace: Any, finish: Finish
) -> None:
    class Sick:
        calls = 0

        @hookimpl
        def ale_episode_finished(self, event: Any) -> None:
            Sick.calls += 1
            raise RuntimeError("sick observer")

    registry.add(Sick(), "ale-sick")
    messages: list[str] = []
    run = workplace.prepared(workplace.config(n=3), report=messages.append)
    assert (await finish(run)).n_graded == 3
    assert Sick.calls == 1
    assert len(messages) == 1
    assert "sick observer" in messages[0]


async def test_an_observer_may_take_no_argument(
    registry: Any, workplace: Any, finish: Finish
) -> None:
    class Counts:
        calls = 0

        @hookimpl
        def ale_episode_finished(self) -> None:
            Counts.calls += 1

    registry.add(Counts(), "ale-counts")
    await finish(workplace.prepared(workplace.config(n=3)))
    assert Counts.calls == 3


async def test_no_secret_reaches_the_run_directory(bench: Any, workplace: Any) -> None:

    workplace = evolve(workplace, environ={"MY_SETTING": "very-secret-value"})

    async def agent(context: AgentContext) -> Stop:
        context.recorder.append(turn("I found very-secret-value"))
        raise LLMError("401 for very-secret-value")

    bench.agent = agent
    config = workplace.config(agent={"key_env": "MY_SETTING"}, retries=0)
    run = await workplace.ran(config)
    for path in run.store.path.rglob("*"):
        if path.is_file():
            assert b"very-secret-value" not in path.read_bytes(), path


def test_all_problems_of_all_tasks_are_reported_before_anything_is_started(
    bench: Any, workplace: Any
) -> None:
    bench.tasks = lambda n: [
        Task(id="a", goal="g", origin="a.yaml"),
        Task(id="b", goal="g", criteria=(CriterionSpec(type="dome", file="b.yaml", line=4),)),
        Task(id="b", goal="g", origin="c.yaml", criteria=(CriterionSpec(type="done"),)),
    ]
    with pytest.raises(InputError) as caught:
        check_run(workplace.config(), "test", workplace.outside())
    messages = [str(problem) for problem in caught.value.problems]
    assert messages[0] == "a.yaml: task 'a' has no criteria, so it can't be graded"
    assert messages[1].startswith("b.yaml:4: success_criteria[0].type: no criterion 'dome'")
    assert "did you mean 'done'?" in messages[1]
    assert messages[2] == "c.yaml: duplicate task id 'b'"
    assert not workplace.directory.exists()


async def test_tasks_are_drawn_in_rounds_that_depend_on_the_seed_alone(workplace: Any) -> None:
    run = await workplace.ran(workplace.config(n=4, steps=4, tasks_per_step=2))
    drawn = [(e.step, e.task_id) for e in run.store.reader.episodes]
    assert len(drawn) == 8
    for first in (0, 2):
        assert {task for step, task in drawn if step in (first, first + 1)} == {
            "t0",
            "t1",
            "t2",
            "t3",
        }
