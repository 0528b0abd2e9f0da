"""A slow tail: ``run.schedule: stream`` against steps that wait for their slowest episode.

Sandboxes that wait, in the local sandbox with a scripted model: an episode takes 0.2 seconds, and
one of ten takes ten times as long. A step of the trainer takes 0.4 seconds. Both only wait, so that
two cores are enough. Every schedule runs the same episodes for the same number of steps. The share
in which the trainer waits is of the time of all steps, from the metrics of the run: with the first
step, for which a stream has to wait too, and the last ones, for which the slow groups are left.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ALE = str(Path(sys.executable).parent / "ale")
STEPS, PER_STEP, ROLLOUTS = 25, 8, 2
EPISODE_S, SLOW_S, TRAINER_S = 0.2, 2.0, 0.4
SLOW_TASKS = 5
"""One of so many tasks has a slow rollout: one of ten episodes."""
SCHEDULES = {
    "steps": {"schedule": "steps", "staleness": 0},
    "steps, staleness 4": {"schedule": "steps", "staleness": 4},
    "stream, staleness 4": {"schedule": "stream", "staleness": 4},
}
RATIO_AIM = 2.5
WAITING_AIM = 0.2

TRAINER = f"""\
import asyncio

from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakeTrainer


class Waiting(FakeTrainer):
    async def step(self, batch):
        await asyncio.sleep({TRAINER_S})
        return await super().step(batch)


@hookimpl
def ale_trainers():
    return [Component("waiting", None, lambda options, context: Waiting(), summary="Waits.")]
"""


class Measured(NamedTuple):
    """One run."""

    seconds: float
    waiting: float
    """Share of the steps' time in which the trainer waited for groups."""
    staleness: float
    """Highest of a group."""


def write_config(folder: Path) -> Path:
    """Tasks, a script, a trainer and a config."""
    (folder / "tasks").mkdir()
    (folder / "waiting.py").write_text(TRAINER)
    check = {"type": "command_exit_code", "command": "test -e done"}
    scripts = {}
    for i in range(STEPS * PER_STEP // 5):
        name = f"wait-{i:03d}"
        task = {"id": name, "goal": "Wait.", "success_criteria": [check]}
        (folder / "tasks" / f"{name}.yaml").write_text(json.dumps(task))
        first = SLOW_S if i % SLOW_TASKS == 0 else EPISODE_S
        scripts[name] = [_script(seconds) for seconds in (first, EPISODE_S)]
    (folder / "script.yaml").write_text(json.dumps({"default": [], "tasks": scripts}))
    config = {
        "plugins": ["waiting.py"],
        "tasks": {"type": "tbp", "path": "tasks"},
        "sandbox": {"type": "local"},
        "llm": {"type": "scripted", "script": "script.yaml"},
        "agent": {"type": "iflow"},
        "trainer": {"type": "waiting"},
        "observers": [],
        "run": {
            "directory": "runs",
            "steps": STEPS,
            "tasks_per_step": PER_STEP,
            "rollouts": ROLLOUTS,
            "concurrency": 32,
            "keep_checkpoints": 1,
        },
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder / "config.yaml"


def _script(seconds: float) -> list[dict[str, object]]:
    finish: dict[str, object] = {"calls": [{"name": "finish", "arguments": {"summary": "waited"}}]}
    return [{"shell": f"sleep {seconds}; touch done"}, finish]


def measure(config: Path, name: str, options: dict[str, object]) -> Measured:
    """Run with one schedule."""
    given = [f"--set=run.{option}={value}" for option, value in options.items()]
    runs = config.parent / name.replace(" ", "")
    command = [ALE, "run", str(config), f"--set=run.directory={runs}", *given]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    (run,) = runs.iterdir()
    outcome = json.loads((run / "manifest.json").read_text())["outcome"]
    if outcome["n_succeeded"] != STEPS * PER_STEP * ROLLOUTS:
        raise SystemExit(f"only {outcome['n_succeeded']} succeeded")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    steps = [event["metrics"] for event in events if event["event"] == "step_finished"]
    total = sum(_seconds(metrics) for metrics in steps)
    waited = sum(metrics["seconds.rollouts"] for metrics in steps)
    stalest = max(metrics.get("staleness_max", 0) for metrics in steps)
    return Measured(total, waited / total, stalest)


def _seconds(metrics: dict[str, float]) -> float:
    """Of a step: all that the run did or waited for."""
    names = [name for name in metrics if name.startswith("seconds.")]
    return sum(metrics[name] for name in names if not name.startswith("seconds.episodes."))


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder))
        found = {name: measure(config, name, options) for name, options in SCHEDULES.items()}
    basis = found["steps"].seconds
    print(f"{'schedule':<22}{'seconds':>9}{'ratio':>7}{'trainer waits':>15}{'stalest':>9}")
    for name, each in found.items():
        stalest = f"{each.staleness:.0f}" if name.startswith("stream") else ""
        print(
            f"{name:<22}{each.seconds:>9.1f}{basis / each.seconds:>7.2f}"
            f"{each.waiting:>14.0%} {stalest:>9}"
        )
    stream = found["stream, staleness 4"]
    quick, busy = basis / stream.seconds >= RATIO_AIM, stream.waiting < WAITING_AIM
    print(f"time, aim a ratio of {RATIO_AIM}: {'ok' if quick else 'MISSED'}")
    print(f"waiting, aim less than {WAITING_AIM:.0%}: {'ok' if busy else 'MISSED'}")
    return int(not (quick and busy))


if __name__ == "__main__":
    sys.exit(main())
