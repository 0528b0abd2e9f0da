"""`ale.run` and its siblings: what a notebook or a program of one's own calls."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ale
from ale.errors import InputError
from ale.runs import Registry, load_config
from ale.testing.waiting import wait_for
from ale.types import Limits

ROOT = Path(__file__).parents[2]
TASKS = [ale.Task(id=name, goal=f"Say {name}.") for name in ("a", "b")]


@ale.agent
async def idle(context: ale.AgentContext) -> None:
    """Does nothing."""


@ale.criterion("first")
def is_first(answer: ale.Answer, *, name: str = "a") -> float:
    """The task has a certain name."""
    return float(answer.task.id == name)


def half(group: ale.Group, *, share: float = 0.5) -> list[list[float]]:
    return [[share for _ in rollout.chunks] for rollout in group.rollouts]


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {
        "tasks": TASKS,
        "criteria": [is_first],
        "agent": idle,
        "credit": half,
        "sandbox": {"type": "local", "root": tmp_path / "space"},
        "observers": [],
        "run": {"name": "front", "directory": tmp_path / "runs"},
    }


def rewards(run: Any) -> dict[str, float | None]:
    return {episode.id: episode.reward for episode in run.episodes}


def test_objects_stand_in_place_of_components(config: dict[str, Any], tmp_path: Path) -> None:
    found = ale.run(config, {"run.rollouts": 2, "credit.share": 0.25})
    assert rewards(found) == {"0-a-0": 1.0, "0-a-1": 1.0, "0-b-0": 0.0, "0-b-1": 0.0}
    assert found.success == 0.5
    assert found.success is not None
    low, high = found.success.interval
    assert 0 < low < 0.5 < high < 1
    assert found.success.n == 4
    assert found.state == "completed"
    assert found.directory.parent == tmp_path / "runs"
    assert (found.episodes[0].id, found.episodes[-1].turns) == ("0-a-0", ())
    assert found.manifest["config"]["credit"] == {"type": "python/half", "share": 0.25}


def test_options_stand_beside_an_object(config: dict[str, Any]) -> None:
    other = {"type": is_first, "name": "b", "weight": 3.0}
    found = ale.run({**config, "criteria": [{"type": is_first}, other]})
    assert rewards(found) == {"0-a-0": 0.25, "0-b-0": 0.75}


def test_an_undecorated_object_of_the_protocol_is_taken_too(config: dict[str, Any]) -> None:
    class Quiet:
        limits = Limits()

        async def run(self, context: ale.AgentContext) -> ale.Stop:
            return ale.Stop(reason="gave_up")

    found = ale.run({**config, "agent": Quiet()})
    assert {episode.trajectory.stop.reason for episode in found.episodes} == {"gave_up"}


def test_a_run_of_objects_is_resumed_with_them(config: dict[str, Any]) -> None:
    found = ale.run(config)
    log = found.directory / "episodes.jsonl"
    log.write_text(log.read_text().splitlines(keepends=True)[0])
    given = {"agent": idle, "criteria": [is_first], "credit": half}
    resumed = ale.resume(found.directory, given)
    assert sorted(rewards(resumed)) == ["0-a-0", "0-b-0"]
    with pytest.raises(InputError, match=r"python/idle.*ale.resume\(directory"):
        ale.resume(found.directory)


def test_a_path_and_a_checked_config_run_too(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    task = {
        "id": "a",
        "goal": "x",
        "success_criteria": [{"type": "command_exit_code", "command": "test -e f"}],
    }
    (tmp_path / "a.yaml").write_text(json.dumps(task))
    written = {
        "tasks": {"type": "tbp", "path": "a.yaml"},
        "sandbox": {"type": "local", "root": "space"},
        "agent": {"type": "noop"},
        "run": {"directory": "runs"},
    }
    path.write_text(json.dumps(written))
    assert rewards(ale.run(path)) == {"0-a-0": 0.0}
    assert rewards(ale.run(str(path), {"criteria": [is_first]})) == {"0-a-0": 1.0}
    checked = load_config(path, Registry.installed())
    assert rewards(ale.run(checked, {"run.rollouts": 2})) == {"0-a-0": 0.0, "0-a-1": 0.0}
    path.write_text(json.dumps({**written, "criteria": []}))
    with pytest.raises(InputError, match="criteria: unknown section"):
        ale.run(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"agent": is_first}, "agent: is_first is registered as criterion, not as agent"),
        ({"agent": ale.Stop}, "agent: expected an object, found the class Stop"),
        ({"llm": half}, "llm: a function can't be a component of this kind"),
        ({"credit": lambda group, *, n=1: []}, "credit: .*option 'n' has no type"),
        ({"criteria": is_first}, "criteria: expected a list"),
        ({"criteria": [{"name": "a"}]}, "criteria: expected a criterion with a type"),
        ({"plugins": [half]}, "plugins: .* has no decorator"),
        ({"run": {"name": object()}}, "run.name: expected a plain value, found an object"),
        ({"credit": {"type": half, "shard": 1}}, r"credit.shard: unknown option[\s\S]*'share'"),
        ({"agnet": idle}, "agnet: .*[\\s\\S]*did you mean 'agent'"),
    ],
)
def test_a_wrong_object_is_an_error_before_anything_starts(
    config: dict[str, Any], changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        ale.run({**config, **changed})
    assert not (tmp_path / "runs").exists()


def test_two_objects_of_one_name_are_refused(config: dict[str, Any]) -> None:
    one, other = (lambda answer: 1.0), (lambda answer: 0.0)
    with pytest.raises(InputError, match="two objects are named '<lambda>'"):
        ale.run({**config, "criteria": [one, other]})


def test_objects_do_not_leave_the_process(config: dict[str, Any]) -> None:
    pytest.importorskip("ale_nats")
    config["executor"] = {"type": "nats"}
    with pytest.raises(InputError, match="episodes of this executor run in other processes"):
        ale.run(config)


def test_it_runs_inside_a_running_loop_and_beside_it(config: dict[str, Any]) -> None:
    def threads(answer: ale.Answer) -> float:
        return 1.0

    async def notebook() -> tuple[Any, Any]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        beside = asyncio.create_task(tick())
        awaited = await ale.arun({**config, "criteria": [threads]})
        assert ticks > 0
        beside.cancel()
        return awaited, ale.run({**config, "criteria": [threads]})

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    awaited, blocking = asyncio.run(notebook())
    assert (awaited.success, blocking.success) == (1.0, 1.0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_it_runs_in_a_thread(config: dict[str, Any]) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(ale.run(config).state))
    thread.start()
    thread.join(60)
    assert found == ["completed"]


SLOW = """\
import asyncio, sys
from pathlib import Path
import ale

@ale.agent
async def slow(context):
    Path("started").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)

tasks = [ale.Task(id=str(i), goal="x") for i in range(3)]
config = {
    "tasks": tasks, "agent": slow, "criteria": [lambda answer: 1.0], "observers": [],
    "sandbox": {"type": "local", "root": "space"}, "run": {"concurrency": 1},
}

async def inside():
    return ale.run(config, report=said)

said = Path("said").write_text
run = asyncio.run(inside()) if sys.argv[1] == "inside" else ale.run(config, report=said)
print(run.state, len(list(run.episodes)))
try:
    import os, signal, time
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    print("its own again")
"""


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_ctrl_c_lets_the_running_episode_end(tmp_path: Path, where: str) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, "slow.py", where]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for((tmp_path / "started").exists, limit_s=60, pause_s=0.01)
            process.send_signal(signal.SIGINT)
            wait_for((tmp_path / "said").exists, limit_s=60, pause_s=0.01)
            (tmp_path / "go").touch()
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "Finishing the running episodes" in (tmp_path / "said").read_text()
    assert out == "drained 1\nits own again\n", err


def test_import_ale_is_cheap() -> None:
    code = "import ale, sys; print([m for m in sys.modules if m.startswith(('ale.', 'attrs'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_smallest_agent(tmp_path: Path) -> None:
    script = ROOT / "examples" / "smallest_agent.py"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert {"('55', 1.0)", "('5050', 0.0)"} <= {*re.findall(r"\(.*?\)", done.stdout)}
    assert done.stdout.endswith("success 0.50\n")
    assert len(script.read_text().splitlines()) <= 40
