"""A run whose jobs leave the process: what is sent, what is refused, what is given back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, field, frozen

from ale._config import RunConfig, structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import check_run, resume, start_checked
from ale.errors import AleError, InputError, PluginError
from ale.plugin import Component, doc, hookimpl
from ale.protocols import AgentContext, RunningRun, Workers
from ale.runs import RunReader
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.executor import job, spec_of
from ale.testing.fakes import FakePolicy
from ale.types import Episode, EpisodeStage, Job, Message, RunFinished, RunSpec, Stop, replace
from ale.workers import Worker, broken, decode, encode

Finish = Callable[[Run], Any]


@frozen(kw_only=True)
class Options:
    """Options of an executor whose workers are as far away as JSON can be."""

    remote: bool = field(default=True, metadata=doc("Whether jobs leave the process."))


class Distant:
    """An executor that sends bytes to workers, and a plugin that registers it."""

    def __init__(self) -> None:
        self.remote = True
        self.registry: Registry | None = None
        self.environ: Mapping[str, str] = {}
        self.sent: list[bytes] = []
        self.stored_ids: list[str] = []
        self.drained = 0
        self.opened = 0
        self.began: list[float | None] = []
        self.check_error: AleError | None = None
        self.give: Callable[[Job, Episode], Episode | None] = lambda job, episode: episode

    @hookimpl
    def ale_executors(self) -> Sequence[Component[Any, Any]]:
        return [Component("distant", Options, lambda o, c: self, summary="A test's executor.")]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        def policy(options: Any, context: Any) -> Any:
            self.began.append(context.created)
            return FakePolicy(lambda request: Message(role="assistant", content="yes"))

        return [Component("trained", None, policy, summary="Weights in this process.")]

    async def check(self) -> None:
        if self.check_error is not None:
            raise self.check_error

    @asynccontextmanager
    async def open(self, run: RunningRun) -> AsyncIterator[Workers]:
        self.sent.append(encode(run.spec))
        assert self.registry is not None
        worker = Worker.build(decode(self.sent[0], RunSpec), self.registry, self.environ)
        self.opened += 1
        try:
            yield _Workers(self, worker, run)
        finally:
            self.opened -= 1
            assert await worker.aclose() == []


class _Workers:
    def __init__(self, executor: Distant, worker: Worker, run: RunningRun) -> None:
        self.executor, self.worker, self.running = executor, worker, run

    async def run(self, job: Job) -> Episode | None:
        self.executor.sent.append(encode(job))
        received = decode(self.executor.sent[-1], Job)
        episode = await self.worker.run(received, self.running.on_stage)
        return self.executor.give(job, decode(encode(episode), Episode))

    async def stored(self, job: Job) -> None:
        self.executor.stored_ids.append(job.id)

    def drain(self) -> None:
        self.executor.drained += 1


@pytest.fixture
def distant(registry: Registry) -> Distant:
    made = Distant()
    made.registry = registry
    registry.add(made, "ale-distant", "1.0")
    return made


def config_of(workplace: Any, n: int = 2, **sections: Any) -> RunConfig:
    plain = {
        "tasks": {"type": "list", "n": n},
        "agent": {"type": "bench"},
        "executor": {"type": "distant"},
        "run": {"directory": str(workplace.directory), "rollouts": 2, **sections.pop("run", {})},
        **sections,
    }
    return structure_config(from_plain(plain), workplace.registry)


def stored_in(run: Run) -> dict[str, Episode]:
    return {episode.id: episode for episode in RunReader(run.store.path).episodes}


async def test_a_run_stores_what_workers_give_back_and_tells_them(
    distant: Distant, workplace: Any, bench: Any, finish: Finish
) -> None:
    bench.events.clear()
    run = workplace.prepared(config_of(workplace, n=3))
    finished: RunFinished = await finish(run)
    assert (finished.outcome, finished.n_graded, finished.n_succeeded) == ("completed", 6, 6)
    assert sorted(distant.stored_ids) == sorted(stored_in(run))
    assert distant.opened == 0


async def test_distant_episodes_are_those_of_a_local_run(
    distant: Distant, workplace: Any, finish: Finish
) -> None:
    options = {"deterministic": True, "concurrency": 1, "seed": 4}
    here = workplace.prepared(config_of(workplace, executor={"type": "local"}, run=options))
    there = workplace.prepared(config_of(workplace, run={**options, "name": "there"}))
    await finish(here)
    await finish(there)
    assert stored_in(here) == stored_in(there)
    assert len(stored_in(there)) == 4


async def test_the_parts_of_a_worker_know_when_the_run_began(
    distant: Distant, workplace: Any, finish: Finish
) -> None:
    run = workplace.prepared(config_of(workplace))
    await finish(run)
    spec = decode(distant.sent[0], RunSpec)
    worker = Worker.build(
        replace(spec, config={**spec.config, "llm": {"type": "trained"}}), workplace.registry, {}
    )
    await worker.aclose()
    assert run.context.created is not None
    assert distant.began == [run.context.created]


async def test_a_worker_gets_only_what_it_needs(
    distant: Distant, workplace: Any, finish: Finish
) -> None:
    distant.environ = {}
    place = evolve(workplace, environ={"MY_API_KEY": "very-secret-indeed"})
    config = config_of(place, agent={"type": "bench", "key_env": "MY_API_KEY"})
    await finish(place.prepared(config))
    spec = decode(distant.sent[0], RunSpec)
    assert {*spec.config} == {"sandbox", "agent", "run"}
    assert spec.versions["ale-bench"] == "1.0"
    assert not any(b"very-secret-indeed" in sent for sent in distant.sent)


async def test_a_workers_own_secrets_do_not_leave_it(
    distant: Distant, workplace: Any, bench: Any
) -> None:
    async def tell(context: AgentContext) -> Stop:
        context.recorder.append(turn("the key is worker-secret-1"))
        return Stop(reason="finished")

    bench.agent = tell
    distant.environ = {"WORKER_API_KEY": "worker-secret-1"}
    run = await workplace.ran(config_of(workplace, n=1))
    said = [e.trajectory.turns[0].completion.message.content for e in stored_in(run).values()]
    assert said == ["the key is ***"] * 2


async def test_stages_reach_the_observers(
    distant: Distant, workplace: Any, bench: Any, finish: Finish, registry: Registry
) -> None:
    seen: list[EpisodeStage] = []

    class Stages:
        @hookimpl
        def ale_episode_stage(self, event: EpisodeStage) -> None:
            seen.append(event)

    registry.add(Stages(), "ale-stages", "1.0")
    await finish(workplace.prepared(config_of(workplace, n=1, run={"rollouts": 1})))
    stages = [event.stage for event in seen]
    assert stages == ["sandbox", "setup", "agent", "grading", "teardown"]
    assert {(e.episode_id, e.task_id) for e in seen} == {("0-t0-0", "t0")}


async def test_an_episode_of_another_job_ends_the_run(
    distant: Distant, workplace: Any, finish: Finish
) -> None:
    distant.give = lambda job, episode: replace(episode, id="0-t9-0")
    run = workplace.prepared(config_of(workplace, n=1, run={"rollouts": 1}))
    with pytest.raises(PluginError, match="for the job 0-t0-0"):
        await finish(run)
    assert stored_in(run) == {}


async def test_ctrl_c_drains_the_executor_and_leaves_withdrawn_job_for_a_resume(
    distant: Distant, workplace: Any, finish: Finish
) -> None:
    outside = workplace.outside()
    run = workplace.prepared(config_of(workplace, n=4), interrupt=outside.interrupt)

    def give(job: Job, episode: Episode) -> Episode | None:
        if not outside.interrupt.draining:
            outside.interrupt.on_interrupt()
        return episode if job.rollout == 0 else None

    distant.give = give
    finished = await finish(run)
    assert finished.outcome == "drained"
    assert distant.drained == 1
    kept = {*stored_in(run)}
    assert kept
    assert all(id.endswith("-0") for id in kept)
    distant.give = lambda job, episode: episode
    again = resume(run.store.path, workplace.outside())
    assert (await finish(again)).outcome == "completed"
    assert len(stored_in(run)) == 8
    assert len(distant.stored_ids) == 8


async def test_broken_job_stop_a_run_early_as_local_ones_do(
    distant: Distant, workplace: Any, finish: Finish
) -> None:
    distant.give = lambda job, _: broken(job, "WorkerLostError", "3 workers were lost")
    run = workplace.prepared(config_of(workplace, n=4))
    assert (await finish(run)).outcome == "stopped"
    assert run.early_stop.cause == "queued: WorkerLostError: 3 workers were lost"
    assert len(distant.stored_ids) == 3


async def test_an_executor_that_can_not_be_reached_is_found_before_the_run(
    distant: Distant, workplace: Any
) -> None:
    distant.check_error = AleError("no server at nowhere:4222")
    outside = workplace.outside()
    ready = check_run(config_of(workplace), "test", outside)
    with pytest.raises(InputError, match=r"executor: no server at nowhere:4222"):
        await start_checked(ready, outside)
    assert not ready.path.exists()


def test_a_model_that_is_trained_in_this_process_is_refused(
    distant: Distant, workplace: Any, registry: Registry
) -> None:
    registry.add(_Trainers(), "ale-trainers", "1.0")
    config = config_of(workplace, llm={"type": "trained"}, trainer={"type": "none"})
    with pytest.raises(InputError, match=r"llm: executor 'distant' runs episodes elsewhere"):
        check_run(config, "test", workplace.outside())
    local = config_of(
        workplace, llm={"type": "trained"}, trainer={"type": "none"}, executor={"type": "local"}
    )
    check_run(local, "test", workplace.outside())


class _Trainers:
    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        members = ("attach", "step", "snapshot", "save", "load")
        trainer = type("Idle", (), {name: lambda *_: None for name in members})
        return [Component("none", None, lambda o, c: trainer(), summary="Trains nothing.")]

    @hookimpl
    def ale_starts(self) -> Sequence[Component[Any, Any]]:
        scheme = type("Scheme", (), {"plan": lambda *_: [], "learn": lambda *_: None})
        return [Component("some", None, lambda o, c: scheme(), summary="Starts.")]


def test_start_schemes_are_refused(distant: Distant, workplace: Any, registry: Registry) -> None:
    registry.add(_Trainers(), "ale-trainers", "1.0")
    config = config_of(workplace, llm={"type": "trained"}, starts={"type": "some"})
    with pytest.raises(InputError, match=r"starts: executor 'distant' runs episodes elsewhere"):
        check_run(config, "test", workplace.outside())


def test_a_worker_of_other_versions_refuses_the_run_and_names_them(tmp_path: Path) -> None:
    spec = replace(spec_of(tmp_path, "r"), versions={"ale-core": "9.9", "absent": "1"})
    with pytest.raises(InputError, match=r"the run has ale-core 9\.9, this worker has .*") as found:
        Worker.build(spec, Registry(), {})
    assert len(found.value.problems) == 1


def test_a_worker_refuses_a_plugin_file_that_is_not_the_runs(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "r")
    file = tmp_path / "kit_parts.py"
    file.write_text(f"{file.read_text()}# another one")
    with pytest.raises(InputError, match=r"kit_parts\.py.* differs from the one"):
        Worker.build(spec, Registry(), {})


def test_a_worker_names_every_part_that_it_lacks(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "r")
    config = {**spec.config, "sandbox": {"type": "moon"}, "llm": {"type": "oracle"}}
    with pytest.raises(InputError) as found:
        Worker.build(replace(spec, config=config), Registry(), {})
    assert "no sandbox 'moon'" in str(found.value)
    assert "no llm 'oracle'" in str(found.value)


def test_a_worker_whose_sandbox_isolates_too_little_refuses_the_run(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "r")
    sandbox = {"type": "kit-folder", "require": ["network"]}
    with pytest.raises(InputError, match=r"sandbox\.require: .* does not isolate the network"):
        Worker.build(replace(spec, config={**spec.config, "sandbox": sandbox}), Registry(), {})


def test_a_worker_may_require_more_isolation_than_the_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sandbox\.require: .* does not isolate the network"):
        Worker.build(spec_of(tmp_path, "r"), Registry(), {}, require=["network"])


async def test_a_job_that_a_worker_can_not_grade_comes_back_broken(tmp_path: Path) -> None:
    worker = Worker.build(spec_of(tmp_path, "r"), Registry(), {})
    made = job("odd")
    task = replace(made.task, criteria=(replace(made.task.criteria[0], type="taste"),))
    episode = await worker.run(replace(made, task=task))
    assert episode.failure is not None
    assert "no criterion 'taste'" in episode.failure.message


async def test_a_cancelled_run_cancels_its_jobs(
    distant: Distant, workplace: Any, bench: Any, finish: Finish
) -> None:
    begun: asyncio.Queue[None] = asyncio.Queue()
    ended: list[str] = []

    async def hang(context: AgentContext) -> Stop:
        try:
            begun.put_nowait(None)
            await asyncio.Event().wait()
        finally:
            ended.append(context.conversation.episode_id)
        raise AssertionError

    bench.agent = hang
    outside = workplace.outside()
    run = workplace.prepared(config_of(workplace, n=1), interrupt=outside.interrupt)
    going = asyncio.create_task(finish(run))
    await asyncio.gather(*(begun.get() for _ in range(2)))
    outside.interrupt.on_terminate()
    assert (await going).outcome == "cancelled"
    assert sorted(ended) == ["0-t0-0", "0-t0-1"]
    assert distant.stored_ids == []
