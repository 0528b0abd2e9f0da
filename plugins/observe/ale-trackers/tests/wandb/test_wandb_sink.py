"""Real runs of wandb, offline; what was logged is read back from its files."""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale.testing.observer import (
    ObserverContract,
    ended,
    finished,
    notify,
    register,
    report,
    started,
)
from ale.testing.waiting import wait_for
from ale.types import EpisodeFinished, replace
from ale_trackers.plugin import ale_observers
from ale_trackers.wandb.options import WandbOptions


@pytest.fixture(autouse=True)
def sdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip(
        "wandb", reason="wandb is not installed here; the session of its own has it"
    )
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))


def build(**fields: Any) -> object:
    (component,) = (each for each in ale_observers() if each.name == "wandb")
    return component.build(WandbOptions(**fields), BuildContext())


class TestOffline(ObserverContract):
    @pytest.fixture
    def observer(self, sdk: None) -> object:
        return build()

    @pytest.mark.long
    async def test_holds_no_more_after_ten_thousand_episodes(
        self, observer: object, tmp_path: Path
    ) -> None:
        await super().test_holds_no_more_after_ten_thousand_episodes(observer, tmp_path)


def records(file: Path) -> Iterator[Any]:
    """The records of a ``.wandb`` file: LevelDB's log format, blocks of 32 KiB, after 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = file.read_bytes()
    assert data[:4] == b":W&B"
    at, whole = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or the last part of one
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def the_file(directory: Path) -> Path:
    [file] = directory.glob("wandb/offline-run-*/run-*.wandb")
    return file


def written(directory: Path) -> Sequence[Any]:
    """The records of the run, once its last one is there.

    wandb's own process writes the file; on a busy machine some ms after `finish` has returned.
    """

    def whole() -> Sequence[Any]:
        found = list(records(the_file(directory)))
        return found if any(record.HasField("exit") for record in found) else ()

    return wait_for(whole)


def rows(directory: Path) -> Sequence[dict[str, Any]]:
    """The rows of the history, without what wandb adds."""
    return [
        {
            name: json.loads(item.value_json)
            for item in record.history.item
            if not (name := item.key or "/".join(item.nested_key)).startswith("_")
        }
        for record in written(directory)
        if record.HasField("history")
    ]


def test_offline_files_contain_what_was_logged(tmp_path: Path) -> None:
    events = [started(tmp_path, n_done=2), ended(0, 1.0), ended(1, None), report(3)]
    notify(register(build(project="p", tags=("a", "b"))), [*events, finished(tmp_path)])
    graded, broken, step = rows(tmp_path)
    assert graded == {
        "episode": 3,
        "episode/broken": 0.0,
        "episode/reward": 1.0,
        "episode/success": 1.0,
        "episode/turns": 2.0,
        "episode/tool_calls": 2.0,
        "episode/tool_errors": 1.0,
        "seconds/sandbox": 0.5,
        "seconds/agent": 12.0,
        "mean/broken": 0.0,
        "mean/reward": 1.0,
        "mean/success": 1.0,
        "mean/turns": 2.0,
        "mean/tool_calls": 2.0,
        "mean/tool_errors": 1.0,
    }
    assert (broken["episode"], broken["episode/broken"]) == (4, 1.0)
    assert "episode/reward" not in broken
    assert step == {"step": 3, "train/loss": 0.5, "train/rows": 8.0, "train/policy_version": 3.0}


def tables(directory: Path) -> list[dict[str, Any]]:
    """The logged tables, in order of their steps."""
    files = directory.glob("wandb/offline-run-*/files/media/table/*.table.json")
    found = [json.loads(file.read_text()) for file in files]
    return sorted(found, key=lambda table: table["data"][0][0])


def test_the_first_episodes_of_each_step_are_a_table(tmp_path: Path) -> None:
    def in_step(number: int, step: int) -> EpisodeFinished:
        event = ended(number, 1.0 if number else None)
        return replace(event, episode=replace(event.episode, step=step))

    first = [in_step(0, 0), in_step(1, 0), in_step(2, 0), report(0)]
    events = [started(tmp_path), *first, in_step(3, 1), finished(tmp_path)]
    notify(register(build(samples=2)), events)
    written(tmp_path)
    step_0, step_1 = tables(tmp_path)
    assert step_0["columns"][:6] == ["step", "episode", "task", "reward", "turns", "stop"]
    assert [row[:4] for row in step_0["data"]] == [
        [0, "0-demo-0", "demo", None],
        [0, "0-demo-1", "demo", 1.0],
    ]
    assert [row[5] for row in step_0["data"]] == ["broken: SetupError", "finished"]
    assert [row[1] for row in step_1["data"]] == ["0-demo-3"]
    assert step_1["data"][0][6].startswith("[assistant]\nlook\nbash({})\nbash({})\n\n[tool]\nok")


def test_without_the_option_there_is_no_table(tmp_path: Path) -> None:
    notify(register(build()), [started(tmp_path), ended(0, 1.0), report(0), finished(tmp_path)])
    written(tmp_path)
    assert tables(tmp_path) == []


def test_the_run_has_its_name_group_tags_and_the_resolved_config(tmp_path: Path) -> None:
    notify(register(build(project="p", tags=("a", "b"))), [started(tmp_path), finished(tmp_path)])
    [run] = [r.run for r in written(tmp_path) if r.HasField("run")]
    assert (run.project, run.display_name, run.run_group) == ("p", "run-1", "run-1")
    assert list(run.tags) == ["a", "b"]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["agent"] == {"type": "demo", "max_steps": 40}
    assert config["credit"] == {"gamma": 0.95}


def test_the_run_is_finished(tmp_path: Path) -> None:
    notify(register(build()), [started(tmp_path), ended(0, 1.0), finished(tmp_path)])
    ends = [r.exit.exit_code for r in written(tmp_path) if r.HasField("exit")]
    assert ends == [0]


def test_disabled_writes_nothing(tmp_path: Path) -> None:
    notify(
        register(build(mode="disabled")),
        [started(tmp_path), ended(0, 1.0), finished(tmp_path)],
    )
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".wandb"] == []


RUN = """
import sys
from pathlib import Path
from ale.errors import AleError
from ale.testing.observer import ended, finished, register, started, notify
from ale.plugin import BuildContext
from ale_trackers.wandb import sink
from ale_trackers.wandb.options import WandbOptions
from ale_trackers.plugin import ale_observers
(component,) = (each for each in ale_observers() if each.name == "wandb")
where = Path(sys.argv[1])
sink.START_TIMEOUT_S = sink.FINISH_TIMEOUT_S = 2.0
options = WandbOptions(mode=sys.argv[2])
try:
    observer = component.build(options, BuildContext())
except AleError as error:
    sys.exit(f"refused: {error}")
notify(register(observer), [started(where), ended(0, 1.0), finished(where)])
"""


def run(mode: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own, without a terminal and, unless given, without a server."""
    known = {name: os.environ[name] for name in ("PATH", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR")}
    known |= {"HOME": str(directory), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", RUN, str(directory), mode],
        env={**known, "WANDB_BASE_URL": "http://127.0.0.1:9", **environ},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


def test_offline_opens_no_connection_to_the_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = run("offline", tmp_path, WANDB_BASE_URL=url, WANDB_API_KEY="a" * 40)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path)) == 1


def test_online_without_a_key_is_refused_without_a_prompt(tmp_path: Path) -> None:
    done = run("online", tmp_path)
    assert done.returncode == 1
    assert "refused: mode online, and no key is configured" in done.stderr


def test_a_server_that_can_not_be_reached_is_reported_and_the_run_logged_offline(
    tmp_path: Path,
) -> None:
    done = run("online", tmp_path, WANDB_API_KEY="a" * 40)
    assert done.returncode == 0, done.stderr
    assert "continuing offline" in done.stderr
    assert [row["episode/reward"] for row in rows(tmp_path)] == [1.0]
