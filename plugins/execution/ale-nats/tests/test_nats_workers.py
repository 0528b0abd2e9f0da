"""Which jobs a worker takes, what is lost, limited, given back and resumed; with real servers."""

import asyncio
import hashlib
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ale.errors import AleError, InputError
from ale.protocols import RunningRun
from ale.runs import Registry
from ale.testing.executor import LIMIT_S, KitRun, appears, job, spec_of
from ale.testing.waiting import until, wait_for
from ale.types import Episode, RunSpec, replace
from ale.workers import Worker
from ale_nats.connection import connected
from ale_nats.executor import NatsExecutor, Session
from ale_nats.messages import Progress, encoded
from ale_nats.options import NatsOptions
from ale_nats.running import run_worker
from ale_nats.subjects import EPISODES, JOBS, OBJECTS, RUNS, jobs_consumer, subject
from ale_nats.testing import WorkerGroup
from ale_nats_client.testing import Server, free_port

MakeRun = Callable[..., KitRun]


@pytest.fixture
def make_run(own_server: Server, tmp_path: Path) -> MakeRun:
    """Makes a run of that server, with options of its executor."""

    def make(change: Callable[[RunSpec], RunSpec] = lambda spec: spec, **options: Any) -> KitRun:
        spec = spec_of(tmp_path, f"run {len(made)}")
        made.append(spec.run_id)
        settings = NatsOptions(url=own_server.url, **{"lost_after_s": 1.0, **options})
        here = Worker.build(spec, Registry.installed(), {})
        return KitRun(executor=NatsExecutor(settings, {}), spec=change(spec), here=here)

    made: list[str] = []
    return make


async def told(reports: list[str], text: str) -> str:
    """Wait until the user is told something."""
    found: list[str] = await until(lambda: [each for each in reports if text in each])
    return found[0]


async def test_only_a_worker_with_all_labels_takes_a_runs_jobs(
    make_run: MakeRun, own_group: WorkerGroup
) -> None:
    plain, able = own_group.start("--labels", "gpu"), own_group.start("--labels", "docker, gpu")
    run = make_run(labels=("gpu", "docker"))
    async with run.open() as workers:
        await asyncio.gather(*(run.stored(workers, job(f"w{i}")) for i in range(8)))
    assert "takes jobs" in able.read_text()
    assert "takes jobs" not in plain.read_text()


async def test_nobody_is_there_and_the_user_is_told_what_to_start(
    make_run: MakeRun, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_nats.executor.SILENCE_S", 0.2)
    run = make_run(labels=("gpu",))
    async with run.open() as workers:
        asked = asyncio.create_task(workers.run(job("alone")))
        message = await asyncio.wait_for(told(run.reports, "no worker has taken"), 15)
        assert f"ale workers run --nats {own_server.url} --labels gpu" in message
        workers.drain()
        assert await asked is None, "nobody had begun it"


async def test_a_worker_of_another_version_takes_nothing_and_says_why(
    make_run: MakeRun, own_group: WorkerGroup
) -> None:
    output = own_group.start("--name", "old")
    run = make_run(lambda spec: replace(spec, versions={"ale-core": "7.7"}))
    async with run.open() as workers:
        asked = asyncio.create_task(workers.run(job("other")))
        message = await told(run.reports, "the worker old can't run this run's episodes")
        workers.drain()
        assert await asked is None
    assert "the run has ale-core 7.7, this worker has" in message
    assert "takes no jobs of run-0" in output.read_text()


async def test_a_worker_refuses_a_sandbox_that_isolates_less_than_it_requires(
    make_run: MakeRun, own_group: WorkerGroup
) -> None:
    own_group.start("--name", "careful", "--require", "network,files")
    run = make_run()
    async with run.open() as workers:
        asked = asyncio.create_task(workers.run(job("other")))
        message = await told(run.reports, "the worker careful can't run this run's episodes")
        workers.drain()
        assert await asked is None
    assert "does not isolate the network or files" in message


def test_a_worker_can_only_require_what_sandboxes_isolate() -> None:
    with pytest.raises(InputError, match="--require: unknown: moon"):
        run_worker(NatsOptions(), "", 1, None, None, require="files,moon")


KEYED = """
from attrs import field, frozen
from ale.errors import InputError, Problem
from ale.plugin import Component, doc, hookimpl
from ale.testing.fakes import FakeLLM


@frozen(kw_only=True)
class Options:
    api_key_env: str = field(metadata=doc("The key's variable."))


def build(options, context):
    if context.secret(options.api_key_env) is None:
        raise InputError([Problem(message=f"{options.api_key_env} is not set")])
    return FakeLLM([])


@hookimpl
def ale_llms():
    return [Component("keyed", Options, build, summary="Needs a key.")]
"""


def with_model(spec: RunSpec, *, file: Path, variable: str) -> RunSpec:
    """The run with a model that needs the key in a variable."""
    file.write_text(KEYED)
    plugins = [*spec.config["plugins"], str(file)]
    llm = {"type": "keyed", "api_key_env": variable}
    digests = {**spec.plugin_files, str(file): hashlib.sha256(KEYED.encode()).hexdigest()}
    config = {**spec.config, "llm": llm, "plugins": plugins}
    return replace(spec, config=config, plugin_files=digests)


async def test_a_worker_lets_runs_read_only_the_variables_that_it_allows(
    make_run: MakeRun, own_group: WorkerGroup, tmp_path: Path
) -> None:
    environ = {"MODEL_KEY": "key-of-a-model", "OTHER_KEY": "another-secret"}
    own_group.start("--name", "careful", "--allow-env", "MODEL_KEY", environ=environ)

    def asking(variable: str) -> Callable[[RunSpec], RunSpec]:
        return partial(with_model, file=tmp_path / "keyed.py", variable=variable)

    run = make_run(asking("MODEL_KEY"))
    async with run.open() as workers:
        assert (await run.stored(workers, job("allowed"))).reward == 1.0
    run = make_run(asking("OTHER_KEY"))
    async with run.open() as workers:
        asked = asyncio.create_task(workers.run(job("other")))
        assert "OTHER_KEY" in await told(run.reports, "the worker careful can't run")
        workers.drain()
        assert await asked is None


@pytest.mark.long
async def test_a_job_that_no_worker_survives_is_a_broken_episode(
    make_run: MakeRun, own_group: WorkerGroup
) -> None:
    own_group.start()
    own_group.start()
    run = make_run(deliveries=2)
    deadly = job("deadly", "kill -9 $PPID")
    async with run.open() as workers:
        asked = asyncio.create_task(run.stored(workers, deadly))
        while not asked.done():
            for dead in [each for each in own_group.workers if each.poll() is not None]:
                own_group.end(dead)
                await asyncio.to_thread(own_group.start)
            await asyncio.sleep(0.1)
        episode = await asked
    assert episode.failure is not None
    assert episode.failure.kind == "WorkerLostError"
    assert "workers took it" in episode.failure.message
    assert own_group.started > 2
    assert any("no sign of life: 0-deadly-0" in report for report in run.reports)


async def test_a_run_waits_while_the_queue_is_full(
    make_run: MakeRun, own_group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_nats.subjects.QUEUE_LIMIT", 2)
    run = make_run()
    async with run.open() as workers:
        asked = [asyncio.create_task(run.stored(workers, job(f"w{i}"))) for i in range(6)]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_group.start)
        episodes = await asyncio.gather(*asked)
    assert [episode.reward for episode in episodes] == [1.0] * 6


async def test_a_job_that_waits_for_the_queue_is_withdrawn_too(
    make_run: MakeRun, own_group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_nats.subjects.QUEUE_LIMIT", 1)
    async with make_run().open() as other, make_run().open() as workers:
        holding = asyncio.create_task(other.run(job("other")))
        await _holds(own_group.url, JOBS, 1)
        asked = asyncio.create_task(workers.run(job("waits")))
        await asyncio.sleep(0.5)
        workers.drain()
        assert await asyncio.wait_for(asked, 60) is None
        other.drain()
        assert await holding is None


async def test_the_user_is_told_once_that_the_server_is_lost_and_once_that_it_is_back(
    make_run: MakeRun, own_server: Server
) -> None:
    run = make_run(give_up_s=90.0)
    async with run.open():
        for _ in range(2):
            run.reports.clear()
            own_server.stop()
            await told(run.reports, "is lost")
            await asyncio.sleep(1.2)  # two attempts to connect
            own_server.start()
            await told(run.reports, "is back")
            assert run.reports == [
                f"the connection to the NATS server at {own_server.url} is lost; trying again "
                "for 1 min 30 s",
                "the connection to the NATS server is back",
            ]
        run.reports.clear()
    assert run.reports == [], "nor at the end of the run"


async def test_a_lost_job_is_given_away_again_while_others_are_withdrawn(
    make_run: MakeRun, own_server: Server
) -> None:
    async with (
        make_run().open() as workers,
        connected(NatsOptions(url=own_server.url), {}, name="test") as link,
    ):
        assert isinstance(workers, Session)
        lost = asyncio.create_task(workers.run(job("lost")))
        consumer = jobs_consumer(workers._token)
        jobs = await link.stream.pull_subscribe_bind(consumer, stream=JOBS)
        (taken,) = await jobs.fetch(1, timeout=LIMIT_S)
        where = subject("stage", workers._token, taken.subject.rpartition(".")[2])
        progress = Progress(stage="queued", worker="one that is lost", delivery=1)
        await link.client.publish(where, encoded(progress))
        await until(lambda: any(each.taken_by for each in workers._asked.values()))
        waits = asyncio.create_task(workers.run(job("waits")))
        await _holds(own_server.url, JOBS, 2)
        workers.drain()
        assert await waits is None
        await _holds(own_server.url, JOBS, 1)
        (again,) = await jobs.fetch(1, timeout=10)
        assert again.subject == taken.subject
        lost.cancel()


async def test_a_job_that_is_withdrawn_while_it_is_sent_is_not_in_the_queue(
    make_run: MakeRun, own_group: WorkerGroup
) -> None:
    async with make_run().open() as workers:
        asked = asyncio.create_task(workers.run(job("large", "true #" + "x" * 5_000_000)))
        await asyncio.sleep(0)
        workers.drain()
        assert await asyncio.wait_for(asked, 60) is None
        assert await _messages(own_group.url, JOBS) == 0


async def test_a_job_that_begins_after_the_run_drains_is_not_queued(
    make_run: MakeRun, own_group: WorkerGroup
) -> None:
    async with make_run().open() as workers:
        asked = asyncio.create_task(workers.run(job("late")))
        workers.drain()
        assert await asyncio.wait_for(asked, 60) is None
        assert await _messages(own_group.url, JOBS) == 0


async def _messages(url: str, stream: str) -> int:
    async with connected(NatsOptions(url=url), {}, name="test") as link:
        return (await link.stream.stream_info(stream)).state.messages


async def _holds(url: str, stream: str, expected: int) -> None:
    async def holds() -> bool:
        return await _messages(url, stream) == expected

    await until(holds)


async def test_a_finished_run_leaves_nothing_in_the_server(
    make_run: MakeRun, own_group: WorkerGroup, own_server: Server
) -> None:
    own_group.start()
    run = make_run()
    large = job("large", "head -c 3000000 /dev/zero | tr '\\0' x; touch done")
    async with run.open() as workers:
        await run.stored(workers, large)
        dropped = await workers.run(job("dropped", "head -c 3000000 /dev/zero | tr '\\0' y"))
        assert dropped is not None
    async with connected(NatsOptions(url=own_server.url), {}, name="test") as link:
        for stream in (RUNS, JOBS, EPISODES):
            state = (await link.stream.stream_info(stream)).state
            assert (stream, state.messages, state.consumer_count) == (stream, 0, 0)
        store = await link.stream.object_store(OBJECTS)
        assert await _names(store) == []


async def _names(store: Any) -> list[str]:
    from nats.js.errors import NotFoundError

    try:
        return [info.name for info in await store.list(ignore_deletes=True)]
    except NotFoundError:
        return []


async def killed_session(run: KitRun, asked: list[Any], until: Path) -> None:
    """A session that asks for jobs and is gone, as after kill -9, once a file is there."""
    executor = run.executor
    assert isinstance(executor, NatsExecutor)
    running = RunningRun(
        spec=run.spec,
        concurrency=8,
        run_here=run.here.run,
        on_stage=lambda job, stage: None,
        report=run.reports.append,
    )
    async with connected(executor.options, {}, name="killed") as link:
        session = Session(link, running, executor.options)
        await session.start()
        tasks = [asyncio.create_task(session.run(each)) for each in asked]
        await appears(until)
        await link.client.close()  # what it would say on its way out is not heard
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_resumed_run_gets_what_was_finished_while_nobody_was_there(
    make_run: MakeRun, own_group: WorkerGroup, own_server: Server, tmp_path: Path
) -> None:
    own_group.start()
    run, counts, begun = make_run(), tmp_path / "counts", tmp_path / "begun"
    goal = f"echo $seed >> {counts}; touch {begun}; sleep 0.5; touch done"
    jobs = [job(f"w{i}", goal, seed=i) for i in range(3)]
    await killed_session(run, jobs, begun)
    await asyncio.to_thread(wait_for, lambda: len(counts.read_text().split()) == 3, "3 jobs")
    await asyncio.sleep(1.5)  # longer than after which a worker counts as lost
    async with run.open() as workers:
        episodes = await asyncio.gather(*(run.stored(workers, each) for each in jobs))
    assert [episode.reward for episode in episodes] == [1.0] * 3
    assert sorted(counts.read_text().split()) == ["0", "1", "2"], "each was run once"


async def test_the_server_is_restarted_while_job_run(
    make_run: MakeRun, own_group: WorkerGroup, own_server: Server, tmp_path: Path
) -> None:
    own_group.start()
    run, begun, go = make_run(), tmp_path / "begun", tmp_path / "go"
    goal = f"touch {begun}; while ! test -e {go}; do sleep 0.05; done; touch done"
    async with run.open() as workers:
        asked = [asyncio.create_task(run.stored(workers, job(f"w{i}", goal))) for i in range(6)]
        await appears(begun)
        await asyncio.to_thread(own_server.stop)
        go.touch()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_server.start)
        episodes = await asyncio.gather(*asked)
    assert [episode.reward for episode in episodes] == [1.0] * 6


async def test_an_episode_that_is_lost_with_the_connection_comes_again(
    make_run: MakeRun, own_group: WorkerGroup, own_server: Server, tmp_path: Path
) -> None:
    own_group.start()
    run, begun, go = make_run(), tmp_path / "begun", tmp_path / "go"
    goal = f"touch {begun}; while ! test -e {go}; do sleep 0.05; done; touch done"
    async with run.open() as workers:
        assert isinstance(workers, Session)
        asked = asyncio.create_task(run.stored(workers, job("one", goal)))
        await appears(begun)
        connection = workers._link.client._transport._io_writer.transport  # type: ignore[union-attr]
        connection.pause_reading()
        go.touch()
        await _holds(own_server.url, EPISODES, 1)
        await asyncio.sleep(0.2)  # the server pushes it
        connection.abort()
        episode = await asyncio.wait_for(asked, 60)
    assert episode.reward == 1.0


async def test_a_server_that_has_lost_its_files_gets_all_again(
    make_run: MakeRun, own_group: WorkerGroup, own_server: Server, tmp_path: Path
) -> None:
    run = make_run()
    async with run.open() as workers:
        asked = [asyncio.create_task(run.stored(workers, job(f"w{i}"))) for i in range(4)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(own_server.stop)
        (own_server.folder / "store").rename(tmp_path / "lost")
        await asyncio.to_thread(own_server.start)
        await asyncio.to_thread(own_group.start)
        episodes = await asyncio.wait_for(asyncio.gather(*asked), 60)
    assert [episode.reward for episode in episodes] == [1.0] * 4


@pytest.mark.long
async def test_a_server_that_stays_away_ends_the_run_after_a_while(
    make_run: MakeRun, own_server: Server
) -> None:
    run = make_run(give_up_s=0.5)

    async def ask() -> None:
        async with run.open() as workers:
            asked = asyncio.create_task(workers.run(job("waits")))
            await asyncio.sleep(0.2)
            await asyncio.to_thread(own_server.stop)
            await asked

    with pytest.raises(AleError, match=r"no NATS server at .* for 0\.5 s; resume the run"):
        await ask()
    assert any("was not told that the run ended" in report for report in run.reports)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_is_told_to_end_gives_back_or_finishes_its_jobs(
    make_run: MakeRun, own_group: WorkerGroup, tmp_path: Path, number: signal.Signals
) -> None:
    output = own_group.start()
    first = own_group.workers[0]
    # So long that only what is given back, not what is thought to be lost, comes soon.
    run, begun, go = make_run(lost_after_s=60.0), tmp_path / "begun", tmp_path / "go"
    goal = f"echo $$ >> {begun}; while ! test -e {go}; do sleep 0.05; done; touch done"
    async with run.open() as workers:
        asked = asyncio.create_task(run.stored(workers, job("w", goal)))
        await appears(begun)
        first.send_signal(number)
        if number == signal.SIGTERM:
            await asyncio.to_thread(first.wait, 20)
            await asyncio.to_thread(own_group.start)
        await asyncio.sleep(0.3)
        go.touch()
        episode = await asyncio.wait_for(asked, 60)
    assert episode.reward == 1.0
    assert await asyncio.to_thread(first.wait, 20) == 128 + number
    times = len(begun.read_text().split())
    assert times == (2 if number == signal.SIGTERM else 1)
    last = output.read_text().splitlines()[-1]
    assert last == ("0 episodes" if number == signal.SIGTERM else "1 episode")


def test_an_idle_worker_ends_where_it_is_told_to(own_group: WorkerGroup) -> None:
    own_group.start("--exit-when-idle", "0.3")
    assert own_group.workers[0].wait(20) == 0


def test_a_worker_without_a_server_says_so(tmp_path: Path) -> None:
    import subprocess

    from ale_nats.testing import ALE

    url = f"nats://127.0.0.1:{free_port()}"
    command = [ALE, "workers", "run", "--nats", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"no NATS server can be reached at {url}" in done.stderr
    assert "start one there (nats-server -js), or name another: " in done.stderr
    assert "--nats for `ale workers run`" in done.stderr
    assert "Traceback" not in done.stderr


async def test_two_runs_share_a_worker(make_run: MakeRun, own_group: WorkerGroup) -> None:
    own_group.start()
    one, other = make_run(), make_run()

    async def all_of(run: KitRun) -> list[Episode]:
        async with run.open() as workers:
            return await asyncio.gather(*(run.stored(workers, job(f"w{i}")) for i in range(8)))

    found = await asyncio.gather(all_of(one), all_of(other))
    assert [[episode.reward for episode in episodes] for episodes in found] == [[1.0] * 8] * 2


@pytest.mark.parametrize(("deliveries", "reward"), [(1, None), (2, 1.0)])
async def test_a_job_is_given_to_workers_as_often_as_the_run_says(
    make_run: MakeRun, own_server: Server, own_group: WorkerGroup, deliveries: int, reward: object
) -> None:
    async with (
        make_run(deliveries=deliveries).open() as workers,
        connected(NatsOptions(url=own_server.url), {}, name="test") as link,
    ):
        assert isinstance(workers, Session)
        asked = asyncio.create_task(workers.run(job("lost")))
        consumer = jobs_consumer(workers._token)
        jobs = await link.stream.pull_subscribe_bind(consumer, stream=JOBS)
        await jobs.fetch(1, timeout=LIMIT_S)  # as by a worker that is lost at once
        await asyncio.to_thread(own_group.start)
        episode = await asyncio.wait_for(asked, LIMIT_S)
    assert episode is not None
    assert episode.reward == reward
    if episode.failure is not None:
        assert episode.failure.kind == "WorkerLostError"
        assert "workers took it 1 time" in episode.failure.message


async def test_a_job_that_takes_longer_than_a_worker_may_be_silent_is_run_once(
    make_run: MakeRun, own_group: WorkerGroup, tmp_path: Path
) -> None:
    own_group.start()
    run, begun = make_run(lost_after_s=1.0), tmp_path / "begun"
    async with run.open() as workers:
        long = job("long", f"echo $$ >> {begun}; sleep 2.5; touch done")
        assert (await run.stored(workers, long)).reward == 1.0
    assert len(begun.read_text().split()) == 1
    assert run.reports == [], "nor has no worker taken it"


async def test_a_worker_runs_as_many_jobs_at_once_as_it_has_slots(
    make_run: MakeRun, own_group: WorkerGroup, tmp_path: Path
) -> None:
    own_group.start("--slots", "2")
    run, now = make_run(), tmp_path / "now"
    now.mkdir()
    goal = f"touch {now}/$$; sleep 0.4; ls {now} | wc -l; rm {now}/$$; touch done"
    async with run.open() as workers:
        asked = (run.stored(workers, job(f"w{i}", goal)) for i in range(6))
        episodes = await asyncio.gather(*asked)
    said = [episode.trajectory.turns[0].observations[0].content for episode in episodes]
    assert max(map(int, said)) == 2
