"""Ctrl-C drains, twice cancels, SIGTERM cancels; nothing of a sandbox is left after any of them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.own_process

N = 16

to_group_or_process = pytest.mark.parametrize(
    "group", [True, False], ids=["to the group", "to the process"]
)


@pytest.fixture
def config(workshop: Any, shell: Any) -> str:
    """Episodes that leave a process behind; all but the first wait until they are released."""
    for number in range(N):
        workshop.task(f"t{number:02}")
    waiting = shell("sleep 3001 &", wait_for_release(workshop), "touch done")
    workshop.scripted(
        {"tasks": {"t00": [shell("touch done")]}, "default": waiting}, run={"concurrency": 4}
    )
    return "run.yaml"


def wait_for_release(workshop: Any) -> str:
    """A command that ends only when a test releases it."""
    return f"until test -e {workshop.folder}/released; do sleep 0.02; done"


def release(workshop: Any) -> None:
    workshop.write("released", "")


def outcome(run: Path) -> str:
    made: str = json.loads((run / "manifest.json").read_text())["outcome"]["outcome"]
    return made


def working(workshop: Any) -> Any:
    """Waits until an episode is done and others are in their sandboxes."""

    def some() -> bool:
        done = workshop.runs and (workshop.run / "episodes.jsonl").exists()
        return done and bool(workshop.lines()) and len(workshop.orphans()) >= 2

    return workshop.wait_for(some)


def finish(workshop: Any) -> None:
    """Resume, and see that every episode is there once and well."""
    release(workshop)
    before = (workshop.run / "episodes.jsonl").read_bytes()
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert (workshop.run / "episodes.jsonl").read_bytes().startswith(before)
    episodes = workshop.episodes()
    assert len(episodes) == N
    assert {episode["reward"] for episode in episodes.values()} == {1.0}


@to_group_or_process
def test_the_first_ctrl_c_finishes_what_runs(workshop: Any, config: str, group: bool) -> None:
    running = workshop.start("run", config)
    working(workshop)
    running.signal(signal.SIGINT, group=group)
    workshop.wait_for(lambda: running.has_printed("Finishing"))
    release(workshop)
    ended = running.ended()
    assert ended.code == 130, ended.text
    assert "Finishing the running episodes; press Ctrl-C again to cancel them." in ended.err
    assert f"ale run --resume runs/{workshop.run.name}" in ended.out
    assert outcome(workshop.run) == "drained"
    episodes = workshop.episodes()
    assert 4 <= len(episodes) < N
    assert {episode["reward"] for episode in episodes.values()} == {1.0}
    assert workshop.left_behind() == []
    finish(workshop)


@to_group_or_process
def test_the_second_ctrl_c_cancels_and_cleans_up(workshop: Any, shell: Any, group: bool) -> None:
    for number in range(N):
        workshop.task(f"t{number:02}")
    endless = {"tasks": {"t00": [shell("touch done")]}, "default": shell("sleep 3001 & sleep 3001")}
    workshop.scripted(endless, run={"concurrency": 4})
    running = workshop.start("run", "run.yaml")
    working(workshop)
    running.signal(signal.SIGINT, group=group)
    workshop.wait_for(lambda: running.has_printed("Finishing"))
    assert running.process.poll() is None
    running.signal(signal.SIGINT, group=group)
    ended = running.ended(timeout_s=20.0)
    assert ended.code == 130, ended.text
    assert "Cancelling" in ended.err
    assert outcome(workshop.run) == "cancelled"
    assert workshop.episodes().keys() == {"0-t00-0"}
    assert workshop.left_behind() == []


@to_group_or_process
def test_sigterm_cancels_at_once_and_cleans_up(workshop: Any, config: str, group: bool) -> None:
    running = workshop.start("run", config)
    working(workshop)
    running.signal(signal.SIGTERM, group=group)
    ended = running.ended()
    assert ended.code == 143, ended.text
    assert outcome(workshop.run) == "cancelled"
    assert workshop.left_behind() == []
    finish(workshop)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_sigterm_finishes_what_runs_where_the_config_says_so(
    workshop: Any, config: str, second: signal.Signals
) -> None:
    running = workshop.start("run", config, "--set", "run.on_sigterm=drain")
    working(workshop)
    running.signal(signal.SIGTERM)
    workshop.wait_for(lambda: running.has_printed("Finishing"))
    assert running.process.poll() is None
    running.signal(second)
    ended = running.ended()
    assert ended.code == 143, ended.text
    assert "Cancelling" in ended.err
    assert outcome(workshop.run) == "cancelled"
    assert workshop.left_behind() == []


def test_episodes_that_run_at_a_drained_sigterm_are_stored(workshop: Any, config: str) -> None:
    running = workshop.start("run", config, "--set", "run.on_sigterm=drain")
    working(workshop)
    running.signal(signal.SIGTERM)
    workshop.wait_for(lambda: running.has_printed("Finishing"))
    release(workshop)
    ended = running.ended()
    assert ended.code == 143, ended.text
    assert outcome(workshop.run) == "drained"
    assert 4 <= len(workshop.episodes()) < N


def test_a_terminal_that_is_closed_cancels_and_cleans_up(workshop: Any, config: str) -> None:
    # Where the tests themselves run under nohup, the signal would be ignored by all that follows.
    spawn = "import pty, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    terminal = [sys.executable, "-c", f"{spawn}; pty.spawn(sys.argv[1:])"]
    with subprocess.Popen(
        [*terminal, Path(sys.executable).with_name("ale"), "run", config],
        cwd=workshop.folder,
        env=workshop.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as window:
        working(workshop)
        writer = int((workshop.run / ".lock").read_text())
        window.kill()
    workshop.wait_for(lambda: not Path(f"/proc/{writer}").exists())
    assert outcome(workshop.run) == "cancelled"
    assert workshop.left_behind() == []
    finish(workshop)


def test_many_ctrl_cs_in_a_row_are_as_good_as_two(workshop: Any, config: str) -> None:
    running = workshop.start("run", config)
    working(workshop)
    for _ in range(20):
        if running.process.poll() is None:
            running.signal(signal.SIGINT)
        time.sleep(0.005)
    ended = running.ended()
    assert ended.code == 130, ended.text
    assert ended.err.count("Cancelling") == 1
    assert "Traceback" not in ended.text
    assert f"ale run --resume runs/{workshop.run.name}" in ended.out
    assert workshop.left_behind() == []
    finish(workshop)


def test_a_ctrl_c_during_the_start_is_reported_by_the_exit_status(
    workshop: Any, shell: Any
) -> None:
    workshop.task("t")
    workshop.scripted({"default": shell(wait_for_release(workshop), "touch done")})
    n_shown = 0
    for number in range(1, 10):
        (workshop.folder / "released").unlink(missing_ok=True)
        running = workshop.start("run", "run.yaml")
        time.sleep(0.06 * number)
        running.signal(signal.SIGINT)
        # Released before it has noticed the signal, it could complete all the same.
        workshop.wait_for(lambda: _noticed(running))  # noqa: B023 - called before the next one
        release(workshop)
        ended = running.ended()
        if ended.err == "KeyboardInterrupt\n" or any(text in ended.err for text in _PYTHONS_OWN):
            continue
        # Until it has something to clean up, the signal itself ends it: 130 to a shell.
        assert ended.code in (130, -signal.SIGINT), ended.text
        assert workshop.left_behind() == []
        n_shown += 1
    assert n_shown, "every Ctrl-C hit Python's own start"
    for run in workshop.runs:
        workshop.succeeds("run", "--resume", str(run))
        assert [episode["reward"] for episode in workshop.episodes(run).values()] == [1.0]


_PYTHONS_OWN = ("Fatal Python error: init_import_site", "Exception ignored in")
"""A Ctrl-C that came while Python itself started, or in a callback of its import system."""


def _noticed(running: Any) -> bool:
    """Does it drain, has it ended, or was the Ctrl-C lost in Python's own code?"""
    lost = any(map(running.has_printed, _PYTHONS_OWN))
    return lost or running.has_printed("Finishing") or running.process.poll() is not None


def test_a_ctrl_c_while_credit_is_given_loses_nothing(workshop: Any, shell: Any) -> None:
    for number in range(N):
        workshop.task(f"t{number:02}")
    lines = shell(*["true"] * 6, "touch done")
    workshop.scripted({"default": lines}, run={"rollouts": 2, "concurrency": 4})

    def crediting() -> bool:
        return bool(workshop.runs) and bool(list(workshop.run.glob("credits/*")))

    running = workshop.start("run", "run.yaml")
    workshop.wait_for(crediting)
    running.signal(signal.SIGINT)
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.code in (0, 130, -signal.SIGINT), ended.text
    assert "Traceback" not in ended.text
    assert len(workshop.episodes()) == 2 * N
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert len(workshop.episodes()) == len(workshop.lines("credits/00000.jsonl")) == 2 * N
    assert outcome(workshop.run) == "completed"
    assert sorted(path.name for path in workshop.run.glob("credits/*")) == ["00000.jsonl"]


def test_a_ctrl_c_at_the_very_end_prints_no_traceback(workshop: Any, shell: Any) -> None:
    """The interpreter waits at its end for a thread, say of a library's."""
    workshop.task("t")
    workshop.scripted({"default": shell("touch done")})
    (workshop.folder / "late").mkdir()
    (workshop.folder / "late" / "sitecustomize.py").write_text(
        "import sys, threading, time\n"
        "if 'run.yaml' in sys.orig_argv:\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
    )
    running = workshop.start("run", "run.yaml", PYTHONPATH=str(workshop.folder / "late"))
    workshop.wait_for(lambda: "completed:" in running.printed)
    time.sleep(1.0)
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert "Traceback" not in ended.text
    assert ended.code in (130, -signal.SIGINT), ended.text
    assert outcome(workshop.run) == "completed"


def test_a_second_process_is_refused_while_the_first_writes(workshop: Any, config: str) -> None:
    running = workshop.start("run", config)
    working(workshop)
    second = workshop.ale("run", "--resume", str(workshop.run))
    assert second.code == 1
    assert f"is in use by process {running.process.pid}, which is running" in second.err
    running.signal(signal.SIGTERM)
    assert running.ended().code == 143
