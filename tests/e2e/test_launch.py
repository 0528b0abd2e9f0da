"""`ale launch`: a run with what is beside it, killed, interrupted and resumed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale_servers.program import free_port

pytestmark = pytest.mark.own_process

N = 12
WAITS = "import time; print('working', flush=True); time.sleep(600)"


@pytest.fixture
def launch_config(workshop: Any, shell: Callable[..., Sequence[Any]]) -> str:
    """12 short episodes, two at a time."""
    for number in range(N):
        workshop.task(f"t{number:02}")
    lines = shell("sleep 0.3; touch done")
    workshop.scripted({"default": lines}, run={"concurrency": 2, "preflight": False})
    return "run.yaml"


def launched(workshop: Any, config: str, *more: str) -> Any:
    return workshop.start("launch", config, "--directory", "runs/one", *more)


def whole(workshop: Any) -> None:
    assert workshop.episodes(workshop.folder / "runs" / "one").keys() == {
        f"0-t{number:02}-0" for number in range(N)
    }
    assert workshop.left_behind() == []


def log(workshop: Any, name: str) -> Path:
    path: Path = workshop.folder / "runs" / "one" / "logs" / f"{name}.log"
    return path


def process_of_the_run(workshop: Any) -> int | None:
    """The id of ``ale run``."""
    wanted = str(workshop.folder / "runs" / "one").encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"run" in words and b"launch" not in words and wanted in words:
            return int(entry.name)
    return None


def episodes(workshop: Any) -> int:
    path = workshop.folder / "runs" / "one" / "episodes.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_dry_run_says_what_would_be_started_and_starts_nothing(
    workshop: Any, launch_config: str
) -> None:
    worker = {"name": "work", "role": "worker", "command": ["python3", "-c", WAITS], "count": 2}
    processes = f"launch.processes={json.dumps([worker])}"
    done = launched(workshop, launch_config, "--dry-run", "--set", processes).ended()
    assert done.code == 0, done.text
    assert "work-1 (worker): any CPU core, no GPU, log work-1.log" in done.out
    assert "run (run): any CPU core, no GPU, log run.log" in done.out
    assert f"-m ale run {workshop.folder}/run.yaml --directory {workshop.folder}/runs/one" in (
        done.out
    )
    assert not (workshop.folder / "runs").exists()


def test_a_misspelt_option_is_named_before_anything_is_started(
    workshop: Any, launch_config: str
) -> None:
    done = launched(workshop, launch_config, "--set", "launch.restart=1", "--on", "local").ended()
    assert done.code == 2
    assert "launch.restart: unknown option" in done.err
    assert "did you mean 'restarts'?" in done.err
    assert "nothing was started" in done.err


def test_a_killed_run_is_resumed_and_each_episode_is_there_once(
    workshop: Any, launch_config: str
) -> None:
    running = launched(workshop, launch_config)
    workshop.wait_for(lambda: episodes(workshop) >= 3)
    killed = process_of_the_run(workshop)
    assert killed is not None
    subprocess.run(["kill", "-KILL", str(killed)], check=True)
    done = running.ended()
    assert done.code == 0, done.text
    assert "launch: run was killed by SIGKILL: started again (1 of 3)" in done.err
    assert "holds a run: it is resumed" in done.out
    assert "completed: 12 episodes on disk" in done.out
    assert done.out.endswith(log(workshop, "run").read_text())
    whole(workshop)


def test_one_interrupt_ends_everything_and_the_same_command_continues(
    workshop: Any, launch_config: str
) -> None:
    worker = {"name": "work", "role": "worker", "command": [sys.executable, "-c", WAITS]}
    beside = ("--on", "local", "--set", f"launch.processes={json.dumps([worker])}")
    running = launched(workshop, launch_config, *beside)
    workshop.wait_for(lambda: episodes(workshop) >= 2)
    running.signal(signal.SIGINT)
    stopped = running.ended()
    assert stopped.code == 130, stopped.text
    assert "Finishing the running episodes" in stopped.out
    assert "working" in log(workshop, "work").read_text()
    assert not _runs_with(WAITS)
    done = launched(workshop, launch_config, *beside).ended()
    assert done.code == 0, done.text
    whole(workshop)


def _runs_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            continue
    return found


SLOW_SERVER = """
import http.server, pathlib, sys, time
time.sleep(1)
pathlib.Path("ready").touch()
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""


def test_the_run_starts_once_its_server_answers(
    workshop: Any, launch_config: str, shell: Any
) -> None:
    port = str(free_port())
    server = {
        "name": "model",
        "role": "server",
        "command": [sys.executable, "-c", SLOW_SERVER, port],
        "url": f"http://127.0.0.1:{port}/",
    }
    workshop.write("script.yaml", {"default": shell("touch done")})
    launch = {"type": "local", "processes": [server]}
    workshop.scripted({"default": shell("touch done")}, launch=launch)
    started = time.time()
    done = launched(workshop, "run.yaml").ended()
    assert done.code == 0, done.text
    manifest = json.loads((workshop.folder / "runs" / "one" / "manifest.json").read_text())
    assert manifest["config"]["launch"]["processes"][0]["name"] == "model"
    ready = (workshop.folder / "ready").stat().st_mtime
    assert ready >= started + 1
    assert (workshop.folder / "runs" / "one" / "manifest.json").stat().st_mtime > ready
    assert '"GET / HTTP/1.1" 200' in log(workshop, "model").read_text()
