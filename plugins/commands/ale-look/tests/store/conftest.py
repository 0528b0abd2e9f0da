"""Runs on disk, and the two kinds of database: SQLite, and a server of PostgreSQL of our own."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ale._cli.main import cli
from ale._store import Redactor, RunDirectory
from ale.testing.builders import turn
from ale.types import Episode, Failure, Message, Score, Stop, Task, Trajectory
from ale_look.store.database import Database, open_database

Ale = Callable[..., Result]
DAY = "2026-11-{:02}T12:00:00+00:00"


def make_run(path: Path, n: int = 3, **config: Any) -> RunDirectory:
    """A run with some episodes, still open; the caller closes it."""
    config = {
        "chunker": {"type": "demo"},
        "llm": {"type": "ale-llm/openai", "model": "m"},
        **config,
    }
    manifest = {"run_id": path.name, "created": DAY.format(1), "config": config, "n_tasks": 2}
    store = RunDirectory.create(path, manifest, Redactor({}))
    for split in ("train", "evaluation"):
        store.add_task(Task(id="rename", goal="Rename the file a to b."), split)
        store.add_task(Task(id="count", goal="Count the lines of a."), split)
    for number in range(n):
        store.add_episode(attempt(number))
    return store


def attempt(number: int, **fields: Any) -> Episode:
    """An episode: 0 succeeds, 1 fails after an error of its shell, 2 is broken, and so on."""
    kind = number % 3
    turns = (
        turn(
            f"I look at file{number}.",
            calls=[("shell", '{"command": "ls"}')],
            observations=["No such file or directory" if kind == 1 else "a"],
            errors=["exit code 2" if kind == 1 else None],
            fresh_context=True,
            prompt=[Message(role="system", content="Sigma"), Message(role="user", content="Go")],
        ),
        turn("Done", calls=[("finish", "{}")]),
    )
    failure = Failure(stage="agent", kind="LLMError", message="connection refused")
    known: dict[str, Any] = {
        "id": f"0-rename-{number}",
        "task_id": "rename",
        "rollout": number,
        "reward": [1.0, 0.25, None][kind],
        "scores": () if kind == 2 else (Score(criterion="exists", passed=kind == 0, value=0.5),),
        "trajectory": Trajectory(turns=turns, stop=Stop(reason="finished")),
        "failure": failure if kind == 2 else None,
        "started_at": DAY.format(1 + number % 28),
        "seconds": {"agent": 2.0},
        **fields,
    }
    return Episode(**known)


@pytest.fixture(name="make_run")
def _make_run() -> Callable[..., RunDirectory]:
    return make_run


@pytest.fixture(name="attempt")
def _attempt() -> Callable[..., Episode]:
    return attempt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one run of three episodes, which has ended."""
    store = make_run(tmp_path / "runs" / "first")
    store.add_event("step_finished", 5.0, step=0, metrics={"loss": 0.5, "odd": float("nan")})
    store.add_event(
        "evaluation_finished", 6.0, step=1, policy_version=1, temperature=0, n_graded=4,
        n_succeeded=3, mean_reward=0.75, seconds=1.0,
    )  # fmt: skip
    store.set_outcome({"outcome": "completed", "seconds": 9.0})
    store.close()
    return tmp_path / "runs"


@pytest.fixture
def ale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ale:
    """`ale`, in the folder that has `runs`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALE_STORE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments: object, answer: str = "") -> Result:
        return CliRunner().invoke(cli, [str(each) for each in arguments], input=answer)

    return call


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    elsewhere = shutil.which("postgres")
    return found[-1].parent if found else Path(elsewhere).parent if elsewhere else None


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server of PostgreSQL, up to the name of a database."""
    programs = _programs()
    if programs is None:
        assert os.environ.get("CI") != "true", "CI must have PostgreSQL"
        pytest.skip("PostgreSQL is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        # It refuses to run as root.
        other: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}
        if other:
            shutil.chown(name, "nobody", "nogroup")
        make = ["initdb", "-D", data, "-A", "trust", "-U", "ale", "--no-sync", "-E", "UTF8"]
        quiet: dict[str, Any] = {"cwd": name, "stdout": subprocess.DEVNULL, **other}
        subprocess.run([programs / make[0], *make[1:], "--locale=C.UTF-8"], check=True, **quiet)
        settings = ["fsync=off", "listen_addresses=127.0.0.1", f"unix_socket_directories={name}"]
        command = [programs / "postgres", "-D", data, "-p", str(port)]
        command += [part for setting in settings for part in ("-c", setting)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **quiet)
        try:
            ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "1"]
            while subprocess.run(ready, check=False).returncode != 0:
                assert process.poll() is None, "PostgreSQL did not start"
            yield f"postgresql://ale@127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def postgresql(server: str) -> Iterator[str]:
    """The URL of a new database."""
    import psycopg

    name = f"ale_{os.urandom(4).hex()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"{server}/{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a database is."""
    if request.param == "sqlite":
        return str(tmp_path / "index.sqlite")
    url: str = request.getfixturevalue("postgresql")
    return url


@pytest.fixture
def database(where: str) -> Iterator[Database]:
    """An open database without rows."""
    opened = open_database(where)
    yield opened
    opened.close()
