"""Every observer promises to survive any run, return at once, keep off stdout and stay small.

```python
class TestMine(ObserverContract):
    @pytest.fixture
    def observer(self, tmp_path: Path) -> object:
        return Mine(MineOptions(), directory=tmp_path)
```
"""

import asyncio
import gc
import statistics
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pluggy
import pytest

from ale import hookspecs
from ale.plugin import PROJECT
from ale.testing._marks import async_tests
from ale.testing.builders import trajectory, turn
from ale.types import (
    Episode,
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    Failure,
    RunFinished,
    RunStarted,
    RunSteered,
    Stage,
    StepFinished,
    StepReport,
    Trajectory,
)

Event = (
    RunStarted
    | EpisodeStage
    | EpisodeFinished
    | StepFinished
    | EvaluationFinished
    | RunSteered
    | RunFinished
)

HOOKS = {
    RunStarted: "ale_run_started",
    EpisodeStage: "ale_episode_stage",
    EpisodeFinished: "ale_episode_finished",
    StepFinished: "ale_step_finished",
    EvaluationFinished: "ale_evaluation_finished",
    RunSteered: "ale_run_steered",
    RunFinished: "ale_run_finished",
}
STAGES: Sequence[Stage] = ("queued", "sandbox", "setup", "agent", "grading", "teardown")
BROKEN = Failure(stage="setup", kind="SetupError", message="no network", traceback="...")
WORK = trajectory(
    turn("look", calls=[("bash", "{}"), ("bash", "{}")], errors=[None, "exit code 1"]),
    turn("done"),
)


def register(observer: object) -> pluggy.PluginManager:
    """Register an observer as a run does.

    Raises:
        pluggy.PluginValidationError: a hook has an argument that its specification lacks, or a
            name that is not in `ale.hookspecs`.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(observer)
    manager.check_pending()
    return manager


def notify(manager: pluggy.PluginManager, events: Iterable[Event]) -> Mapping[str, list[float]]:
    """Call the hook of each event, in order; returns the seconds of each call, by hook."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for event in events:
        name = HOOKS[type(event)]
        start = time.perf_counter()
        getattr(manager.hook, name)(event=event)
        seconds[name].append(time.perf_counter() - start)
    return seconds


def started(directory: Path, n_episodes: int | None = 8, **fields: Any) -> RunStarted:
    """The start of a run of four episodes at once."""
    known = {"n_done": 0, "n_graded": 0, "n_succeeded": 0, "concurrency": 4, **fields}
    config = {"agent": {"type": "demo", "max_steps": 40}, "credit": {"gamma": 0.95}}
    return RunStarted(
        run_id="run-1", directory=str(directory), n_episodes=n_episodes, config=config, **known
    )


def finished(directory: Path, outcome: str = "completed") -> RunFinished:
    """The end of a run."""
    return RunFinished(
        run_id="run-1",
        directory=str(directory),
        outcome=outcome,
        n_graded=0,
        n_broken=0,
        n_succeeded=0,
        mean_reward=None,
        seconds=1.0,
    )


def steered(action: str, *, paused: bool = False, concurrency: int = 4) -> RunSteered:
    """An action of `ale steer`."""
    return RunSteered(run_id="run-1", action=action, paused=paused, concurrency=concurrency)


def stages(number: int, upto: Stage = "teardown") -> Iterator[Event]:
    """The stages of one episode, up to `upto`."""
    for stage in STAGES[: STAGES.index(upto) + 1]:
        yield EpisodeStage(episode_id=f"0-demo-{number}", task_id="demo", stage=stage)


def ended(number: int, reward: float | None) -> EpisodeFinished:
    """One episode's end: graded, or broken in its setup. One of its two tool calls failed."""
    return EpisodeFinished(
        episode=Episode(
            id=f"0-demo-{number}",
            task_id="demo",
            rollout=number,
            reward=reward,
            trajectory=Trajectory() if reward is None else WORK,
            failure=BROKEN if reward is None else None,
            seconds={"sandbox": 0.5, "agent": 12.0},
        )
    )


def episodes(numbers: Iterable[int]) -> Iterator[Event]:
    """Whole episodes: every third is broken, every second graded one is a success."""
    for number in numbers:
        yield from stages(number)
        yield ended(number, None if number % 3 == 2 else float(number % 2))


def report(step: int) -> StepFinished:
    """A trainer's report."""
    return StepFinished(
        report=StepReport(step=step, policy_version=step, metrics={"loss": 0.5, "rows": 8.0})
    )


def evaluated(step: int, n_succeeded: int) -> Sequence[Event]:
    """An evaluation of four episodes."""
    events: list[Event] = []
    for number in range(4):
        episode = Episode(
            id=f"evaluation-{step}-demo-{number}",
            task_id="demo",
            split="evaluation",
            step=step,
            rollout=number,
            reward=float(number < n_succeeded),
        )
        events.append(EpisodeFinished(episode=episode))
    result = EvaluationFinished(
        step=step,
        policy_version=step,
        n_graded=4,
        n_broken=0,
        n_succeeded=n_succeeded,
        mean_reward=n_succeeded / 4,
    )
    return [*events, result]


def stories(directory: Path) -> Mapping[str, Sequence[Event]]:
    """Typical runs: each a sequence of events from start to end."""
    end = finished(directory)
    retried = [*stages(0, "setup"), *stages(0)]
    return {
        "nothing to do": [started(directory, 0), end],
        "already done": [started(directory, n_done=8, n_graded=7, n_succeeded=3), end],
        "all kinds of episodes": [started(directory), *episodes(range(8)), end],
        "all broken": [started(directory, 2), ended(0, None), ended(1, None), end],
        "resumed": [started(directory, n_done=5, n_graded=4, n_succeeded=4), ended(5, 1.0), end],
        "retried": [started(directory, 1), *retried, ended(0, 0.5), end],
        "total unknown": [started(directory, None), *episodes(range(4)), end],
        "more than planned": [started(directory, 1), *episodes(range(3)), end],
        "trained": [started(directory), *episodes(range(4)), report(0), report(1), end],
        "measured": [started(directory), *evaluated(0, 1), report(0), *evaluated(1, 4), end],
        "written before teardown": [started(directory), ended(0, 1.0), *list(stages(0))[-1:], end],
        "cancelled": [
            started(directory),
            *stages(0, "agent"),
            *stages(1, "queued"),
            finished(directory, "cancelled"),
        ],
        "steered": [
            started(directory),
            *stages(0, "agent"),
            steered("pause", paused=True),
            ended(0, 1.0),
            steered("resume"),
            steered("concurrency", concurrency=2),
            *episodes(range(3, 5)),
            steered("stop"),
            finished(directory, "drained"),
        ],
        "failed at once": [started(directory), finished(directory, "failed")],
    }


@async_tests
class ObserverContract:
    """The contract of observers. Give it the fixture `observer`: the product, freshly built."""

    hook_s = 0.05
    """Median seconds that a hook may take."""
    single_hook_s = 1.0
    """The same of a hook that is called once: no median leaves out what a busy machine does."""
    last_hook_s = 10.0
    """Seconds that ``ale_run_finished`` may take: nothing follows, so it may write what is left."""
    flat_bytes = 256 * 1024
    """Memory growth allowed over 10,000 episodes: less than one id for each."""
    settle_s = 120.0
    """Seconds that an observer that writes in the background may take to empty its queue."""

    @pytest.fixture
    def observer(self) -> object:
        raise NotImplementedError("override the fixture `observer`")

    def test_answers_event_hooks_that_exist_with_arguments_that_exist(
        self, observer: object
    ) -> None:
        manager = register(observer)
        answered = {caller.name for caller in manager.get_hookcallers(observer) or ()}
        assert answered, "no method is marked with ale.plugin.hookimpl"
        named = {name for name in dir(observer) if name in HOOKS.values()}
        assert answered >= named, f"not marked with hookimpl: {sorted(named - answered)}"

    @pytest.mark.parametrize("story", stories(Path()))
    async def test_survives_any_run(self, observer: object, story: str, tmp_path: Path) -> None:
        notify(register(observer), stories(tmp_path)[story])

    async def test_leaves_no_task_on_the_event_loop(self, observer: object, tmp_path: Path) -> None:
        before = asyncio.all_tasks()
        notify(register(observer), stories(tmp_path)["all kinds of episodes"])
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before

    async def test_returns_at_once(self, observer: object, tmp_path: Path) -> None:
        manager = register(observer)
        steps = map(report, range(3))
        seconds = notify(manager, [started(tmp_path), *episodes(range(100)), *steps])
        medians = {name: statistics.median(taken) for name, taken in seconds.items()}
        late = {
            name: median
            for name, median in medians.items()
            if median > (self.hook_s if len(seconds[name]) > 1 else self.single_hook_s)
        }
        assert late == {}
        last = notify(manager, [finished(tmp_path)])["ale_run_finished"][0]
        assert last <= self.last_hook_s

    async def test_leaves_standard_output_alone(
        self, observer: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        notify(register(observer), stories(tmp_path)["trained"])
        assert capfd.readouterr().out == ""

    async def test_holds_no_more_after_ten_thousand_episodes(
        self, observer: object, tmp_path: Path
    ) -> None:
        manager = register(observer)
        notify(manager, [started(tmp_path, None), *episodes(range(1000))])
        await asyncio.sleep(0.5)  # a queue with room for only these is emptied meanwhile
        tracemalloc.start()
        try:
            notify(manager, episodes(range(1000, 2000)))
            enough = await _settled() + self.flat_bytes
            deadline = time.monotonic() + self.settle_s
            for first in range(2000, 12_000, 1000):
                notify(manager, episodes(range(first, first + 1000)))
                # Measured once: a moment later, the observer's own thread may hold a batch.
                while (held := _held()) > enough and time.monotonic() < deadline:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # there is no signal to wait for
        finally:
            tracemalloc.stop()
            notify(manager, [finished(tmp_path)])
        assert held <= enough


async def _settled() -> int:
    """Allocated bytes, once they have stopped falling."""
    held, before = _held(), None
    while before is None or held < before:
        await asyncio.sleep(0.2)
        held, before = _held(), held
    return held


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
