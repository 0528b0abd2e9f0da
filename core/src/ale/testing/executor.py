"""Contract kit for executors: every job gives one episode, the same as this process would give.

```python
class TestMine(ExecutorContract):
    @pytest.fixture
    def executor(self) -> Executor:
        return Mine(MineOptions())
```

For an executor whose jobs leave the process, derive from `RemoteExecutorContract`. The tests need
at least two workers that wait for jobs, each of which runs at least two jobs at once and builds the
parts of a run with `ale.workers`; the kit's parts come with the spec, as a plugin file.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from attrs import field, frozen

import ale
from ale.protocols import Executor, RunningRun, Workers
from ale.runs import Registry
from ale.testing._marks import async_tests
from ale.testing.waiting import until
from ale.types import CriterionSpec, Episode, Job, RunSpec, Stage, Task, replace
from ale.workers import WORKER, Worker

PARTS = '''
"""The parts of a run: a folder, an agent that runs its task's goal, a criterion."""

from pathlib import Path

from ale.plugin import Component, hookimpl
from ale.testing.builders import turn
from ale.testing.fakes import FolderBackend
from ale.types import Limits, Score, Stop


class Agent:
    limits = Limits()

    async def run(self, context):
        command = f"seed={context.conversation.seed}; {context.task.goal}"
        result = await context.sandbox.exec(command, timeout_s=120)
        call = ("shell", "{}")
        context.recorder.append(turn("go", calls=[call], observations=[result.stdout.decode()]))
        return Stop(reason="finished")


class Done:
    async def grade(self, task, trajectory, sandbox):
        result = await sandbox.exec("test -e done", timeout_s=60)
        passed = result.exit_code == 0
        return Score(criterion="done", passed=passed, value=float(passed))


@hookimpl
def ale_sandboxes():
    backend = FolderBackend(Path(__file__).parent)
    return [Component("kit-folder", None, lambda o, c: backend, summary="A folder.")]


@hookimpl
def ale_agents():
    return [Component("kit-agent", None, lambda o, c: Agent(), summary="Runs the goal.")]


@hookimpl
def ale_criteria():
    return [Component("kit-done", None, lambda o, c: Done(), summary="A file is there.")]
'''

_RUN_PARTS = """
from ale.testing.fakes import FakeChunker, FakeCreditScheme
from ale.types import CriterionSpec, Task


class Source:
    def load(self):
        done = (CriterionSpec(type="kit-done"),)
        return [Task(id=f"t{i}", goal=goal, criteria=done) for i, goal in enumerate(GOALS)]


@hookimpl
def ale_task_sources():
    return [Component("kit-tasks", None, lambda o, c: Source(), summary="Goals.")]


@hookimpl
def ale_chunkers():
    return [Component("kit-chunker", None, lambda o, c: FakeChunker(), summary="A fake.")]


@hookimpl
def ale_credit_schemes():
    return [Component("kit-credit", None, lambda o, c: FakeCreditScheme(), summary="A fake.")]
"""

LIMIT_S = 60.0
"""Seconds after which the tests give up waiting; an executor takes milliseconds."""
_LARGE = 5_000_000
_STAGES: Sequence[Stage] = ("queued", "sandbox", "setup", "agent", "grading", "teardown")


def job(name: str, goal: str = "touch done", **fields: object) -> Job:
    """A job whose agent runs `goal` in a shell; it succeeds if there is a file ``done``."""
    task = Task(id=name, goal=goal, criteria=(CriterionSpec(type="kit-done"),))
    return Job(**{"id": f"0-{name}-0", "task": task, **fields})  # type: ignore[arg-type]


def write_run(folder: Path, goals: Sequence[str], **sections: object) -> Path:
    """A config in `folder` for ``ale run``, with a task ``t0``, ``t1``, ... for each goal.

    As in `job`, a goal is what the agent runs in a shell, and it succeeds if there is a file
    ``done``. `sections` replace those of the config.
    """
    (folder / "parts.py").write_text(f"{PARTS}\nGOALS = {goals!r}\n{_RUN_PARTS}")
    parts = ("tasks", "agent", "chunker", "credit")
    config = {
        "plugins": ["parts.py"],
        "sandbox": {"type": "kit-folder"},
        "observers": [],
        **{part: {"type": f"kit-{part}"} for part in parts},
        **sections,
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(config))
    return path


def episodes_of(directory: Path) -> list[str]:
    """The ids of the episodes in a run directory; none where there is no run yet."""
    path = directory / "episodes.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["id"] for line in lines]


def spec_of(folder: Path, run_id: str) -> RunSpec:
    """A run whose parts are a plugin file in `folder`."""
    file = folder / "kit_parts.py"
    file.write_text(PARTS)
    config = {
        "sandbox": {"type": "kit-folder"},
        "agent": {"type": "kit-agent"},
        "run": {"deterministic": True, "seed": 7},
        "plugins": [str(file)],
    }
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return RunSpec(
        run_id=run_id,
        config=config,
        versions={"ale-core": ale.__version__},
        plugin_files={str(file): digest},
    )


@frozen(kw_only=True)
class KitRun:
    """A run that asks an executor for episodes, and runs the same jobs in this process."""

    executor: Executor
    spec: RunSpec
    here: Worker
    stages: list[tuple[str, Stage]] = field(factory=list)
    reports: list[str] = field(factory=list)

    def open(self, *, concurrency: int = 8) -> AbstractAsyncContextManager[Workers]:
        """A session of the run."""
        running = RunningRun(
            spec=self.spec,
            concurrency=concurrency,
            run_here=self._run_here,
            on_stage=self._on_stage,
            report=self.reports.append,
        )
        return self.executor.open(running)

    async def _run_here(self, job: Job) -> Episode:
        return await self.here.run(job, self._on_stage)

    def _on_stage(self, job: Job, stage: Stage) -> None:
        self.stages.append((job.id, stage))

    async def stored(self, workers: Workers, asked: Job) -> Episode:
        """Get the episode of a job, and tell the executor that it is stored."""
        episode = await asyncio.wait_for(workers.run(asked), LIMIT_S)
        assert episode is not None, "only a job that was withdrawn has no episode"
        await asyncio.wait_for(workers.stored(asked), LIMIT_S)
        return episode


async def appears(*paths: Path) -> None:
    """Wait until these files exist."""
    await until(lambda: all(path.exists() for path in paths), "the writing of a file", LIMIT_S)


def endless(process: Path) -> str:
    """A goal that writes the id of its process to a file, and does not end by itself."""
    return f"echo $$ > {process}.part; mv {process}.part {process}; sleep 600"


async def ends(process: Path) -> None:
    """Wait until the process whose id is in the file is gone."""
    await until(lambda: not _runs(process), "the end of a job's process", LIMIT_S)


def _runs(process: Path) -> bool:
    return Path(f"/proc/{process.read_text().strip()}").exists()


def plain(episode: Episode) -> object:
    """The facts that must be equal: all except the worker and a failure's traceback.

    The traceback names the caller.
    """
    made = msgspec.to_builtins(episode)
    made["metadata"].pop(WORKER, None)
    if made["failure"] is not None:
        made["failure"]["traceback"] = ""
    return made


@async_tests
class ExecutorContract:
    """The contract of every executor. Derive from it and give it `executor`."""

    @pytest.fixture
    def executor(self) -> Executor:
        """A built executor; its workers, if it has any, wait for jobs."""
        raise NotImplementedError("override the fixture `executor`")

    @pytest_asyncio.fixture
    async def run(self, executor: Executor, tmp_path: Path) -> KitRun:
        spec = spec_of(tmp_path, f"kit {tmp_path.name}")
        here = Worker.build(spec, Registry.installed(), {})
        return KitRun(executor=executor, spec=spec, here=here)

    async def test_every_job_gives_the_episode_that_this_process_gives(self, run: KitRun) -> None:
        jobs = [
            job("succeeds", "echo $seed; touch done", seed=11, step=3, rollout=2),
            job("fails", "echo no; exit 3", split="evaluation", temperature=0.0),
            job("words", "printf 'h\\303\\251 \\360\\237\\230\\200'; touch done", start="s.1"),
        ]
        expected = [plain(await run.here.run(each)) for each in jobs]
        async with run.open() as workers:
            given = await asyncio.gather(*(run.stored(workers, each) for each in jobs))
        assert [plain(each) for each in given] == expected
        assert [each.reward for each in given] == [1.0, 0.0, 1.0]

    async def test_a_job_that_breaks_comes_back_with_the_reason(self, run: KitRun) -> None:
        made = job("broken")
        task = replace(made.task, setup_steps=("echo no disk >&2; exit 9",))
        async with run.open() as workers:
            episode = await run.stored(workers, replace(made, task=task))
        assert episode.reward is None
        assert episode.failure is not None
        assert (episode.failure.stage, episode.failure.kind) == ("setup", "SetupError")
        assert "no disk" in episode.failure.message

    async def test_each_rollout_of_a_task_is_set_up_once(self, run: KitRun) -> None:
        def rollout(number: int) -> Job:
            made = job("again", id=f"0-again-{number}", rollout=number)
            return replace(made, task=replace(made.task, setup_steps=("mkdir data",)))

        async with run.open() as workers:
            given = [await run.stored(workers, rollout(number)) for number in range(3)]
        assert [each.reward for each in given] == [1.0] * 3, given[-1].failure

    async def test_job_run_at_once_and_come_back_as_they_end(
        self, run: KitRun, tmp_path: Path
    ) -> None:
        # Each job waits for the file that the other one writes.
        one, two = tmp_path / "one", tmp_path / "two"
        waits = job("waits", f"touch {one}; until test -e {two}; do sleep 0.05; done; touch done")
        writes = job("writes", f"while ! test -e {one}; do sleep 0.05; done; touch done")
        async with run.open() as workers:
            slow = asyncio.create_task(run.stored(workers, waits))
            quick = await run.stored(workers, writes)
            assert not slow.done()
            two.touch()
            assert (await slow).reward == quick.reward == 1.0

    async def test_stages_that_are_reported_are_those_of_the_job(self, run: KitRun) -> None:
        async with run.open() as workers:
            await asyncio.gather(*(run.stored(workers, job(name)) for name in ("a", "b")))
        for name in ("0-a-0", "0-b-0"):
            seen = [_STAGES.index(stage) for id, stage in run.stages if id == name]
            assert seen == sorted(seen)
        assert {id for id, _ in run.stages} <= {"0-a-0", "0-b-0"}

    async def test_a_large_episode_comes_back_whole(self, run: KitRun) -> None:
        large = job("large", f"head -c {_LARGE} /dev/zero | tr '\\0' x; touch done")
        expected = plain(await run.here.run(large))
        async with run.open() as workers:
            assert plain(await run.stored(workers, large)) == expected

    async def test_a_cancelled_job_ends_and_can_be_asked_for_again(
        self, run: KitRun, tmp_path: Path
    ) -> None:
        begun = tmp_path / "begun"
        async with run.open() as workers:
            asked = asyncio.create_task(workers.run(job("again", endless(begun))))
            await appears(begun)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await ends(begun)
            episode = await run.stored(workers, job("again", "touch done"))
        assert episode.reward == 1.0

    async def test_nothing_runs_after_the_executor_is_closed(
        self, run: KitRun, tmp_path: Path
    ) -> None:
        begun = tmp_path / "begun"
        async with run.open() as workers:
            asked = asyncio.create_task(workers.run(job("left", endless(begun))))
            await appears(begun)
            asked.cancel()
        await ends(begun)

    async def test_a_drained_run_gets_what_was_begun(self, run: KitRun, tmp_path: Path) -> None:
        begun, go = tmp_path / "begun", tmp_path / "go"
        goal = f"touch {begun}; while ! test -e {go}; do sleep 0.05; done; touch done"
        async with run.open() as workers:
            asked = asyncio.create_task(run.stored(workers, job("begun", goal)))
            await appears(begun)
            workers.drain()
            go.touch()
            assert (await asyncio.wait_for(asked, LIMIT_S)).reward == 1.0

    async def test_a_resumed_run_gets_every_job_that_it_asks_for(self, run: KitRun) -> None:
        first, second = job("first", "echo 1; touch done"), job("second")
        async with run.open() as workers:
            before = await run.stored(workers, first)
            dropped = await asyncio.wait_for(workers.run(second), LIMIT_S)
        assert dropped is not None
        async with run.open() as workers:  # the run has lost the episode, and asks again
            after = await run.stored(workers, first)
            assert (await run.stored(workers, second)).reward == 1.0
        assert plain(before) == plain(after)


@async_tests
class RemoteExecutorContract(ExecutorContract):
    """For remote executors. Derive from it and give it `executor` and `kill_a_worker`."""

    @pytest.fixture
    def kill_a_worker(self) -> Callable[[int], None]:
        """Kills with SIGKILL the worker that is the process with this id or has it as a descendant.

        It then starts another worker in its place.
        """
        raise NotImplementedError("override the fixture `kill_a_worker`")

    def test_it_says_that_job_leave_the_process(self, executor: Executor) -> None:
        assert executor.remote

    async def test_the_job_of_a_worker_that_was_killed_is_run_by_another(
        self, run: KitRun, tmp_path: Path, kill_a_worker: Callable[[int], None]
    ) -> None:
        process, go, where = (tmp_path / name for name in ("process", "go", "where"))
        goal = (
            f"pwd >{where}; echo $$ > {process}.part; mv {process}.part {process}; "
            f"while ! test -e {go}; do sleep 0.05; done; touch done"
        )
        async with run.open() as workers:
            asked = asyncio.create_task(run.stored(workers, job("lost", goal)))
            others = [
                asyncio.create_task(run.stored(workers, job(f"other{i}", "sleep 0.2; touch done")))
                for i in range(4)
            ]
            await appears(process)
            await asyncio.to_thread(kill_a_worker, int(process.read_text()))
            go.touch()
            episodes = [await asked, *(await asyncio.gather(*others))]
        assert [each.reward for each in episodes] == [1.0] * 5
        # A killed worker leaves folders behind, which must be the test's own.
        assert Path(where.read_text().strip()).parent == tmp_path
