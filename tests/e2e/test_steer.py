"""`ale steer`: what can be asked of a run that is running."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ale._run.control import NAMED

FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "ok"}}]}


def started(workshop: Any, script: Any, **run: Any) -> Any:
    workshop.task("t")
    observers = run.pop("observers", [{"type": "console"}])
    workshop.scripted(
        {"default": script}, observers=observers, run={"rollouts": 6, "concurrency": 2, **run}
    )
    running = workshop.start("run", "run.yaml")
    workshop.wait_for(lambda: workshop.runs and (workshop.runs[0] / NAMED).exists())
    return running


def started_and_ended(workshop: Any, script: Any, **run: Any) -> str:
    workshop.task("t")
    workshop.scripted({"default": script}, run=run)
    workshop.succeeds("run", "run.yaml")
    return str(workshop.run)


def state(workshop: Any, *action: str) -> dict[str, Any]:
    told = workshop.succeeds("steer", str(workshop.run), *action, "--json")
    return dict(json.loads(told.out))


def connected(workshop: Any) -> socket.socket:
    """A connection to the run; its socket's path may be longer than an address."""
    path = Path((workshop.run / NAMED).read_text())
    descriptor = os.open(path.parent, os.O_PATH)
    made = socket.socket(socket.AF_UNIX)
    made.connect(f"/proc/self/fd/{descriptor}/{path.name}")
    os.close(descriptor)
    return made


@pytest.fixture
def gate(workshop: Any) -> Path:
    """A file without which no episode ends."""
    return Path(workshop.folder / "gate")


def held(workshop: Any, gate: Path) -> list[dict[str, Any]]:
    return [{"shell": f"{workshop.until(gate)}; touch done"}, FINISH]


def test_a_paused_run_starts_no_episode_until_it_is_resumed(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate))
    workshop.wait_for(lambda: state(workshop, "pause")["running"] == 2)
    gate.touch()
    workshop.wait_for(lambda: state(workshop, "pause")["running"] == 0)
    assert len(workshop.lines()) == 2
    assert state(workshop, "resume")["paused"] is False
    ended = running.ended()
    assert ended.code == 0
    told = ended.out + ended.err
    assert told.index("paused: no further episode") < told.index("resumed after a pause")
    assert len(workshop.lines()) == 6
    steered = [e for e in workshop.lines("events.jsonl") if e["event"] == "steered"]
    assert [steered[0]["action"], steered[-1]["action"]] == ["pause", "resume"]
    assert not (workshop.run / NAMED).exists()


def test_observers_learn_what_was_asked_of_the_run(workshop: Any, gate: Path) -> None:
    running = started(
        workshop, held(workshop, gate), observers=[{"type": "console"}, {"type": "audit"}]
    )
    workshop.wait_for(lambda: state(workshop, "pause")["running"] == 2)
    (episode, *_) = state(workshop)["episodes"]
    state(workshop, "cancel", episode["id"])
    state(workshop, "resume")
    state(workshop, "concurrency", "3")
    gate.touch()
    assert running.ended().code == 3
    told = [e for e in workshop.lines("audit.jsonl") if e["event"] == "run_steered"]
    told = told[told.index(next(e for e in told if e["action"] == "cancel")) :]
    assert [e["action"] for e in told] == ["cancel", "resume", "concurrency"]
    assert (told[0]["episode"], told[0]["paused"]) == (episode["id"], True)
    assert (told[2]["concurrency"], told[2]["paused"]) == (3, False)


def test_another_concurrency_holds_at_once(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate))
    assert state(workshop, "concurrency", "5")["concurrency"] == 5
    workshop.wait_for(lambda: state(workshop, "resume")["running"] == 5)
    gate.touch()
    assert running.ended().code == 0


def test_another_concurrency_holds_for_a_stream(workshop: Any, gate: Path) -> None:
    for name in "abcdef":
        workshop.task(name)
    workshop.scripted(
        {"default": held(workshop, gate)},
        trainer={"type": "export", "path": "rows"},
        run={"rollouts": 1, "concurrency": 1, "schedule": "stream", "steps": 1},
    )
    running = workshop.start("run", "run.yaml")
    workshop.wait_for(lambda: workshop.runs and (workshop.runs[0] / NAMED).exists())
    state(workshop, "concurrency", "4")
    workshop.wait_for(lambda: state(workshop, "resume")["running"] == 4)
    gate.touch()
    assert running.ended().code == 0


def test_clients_that_say_nothing_leave_no_trace(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate))
    clients = [connected(workshop) for _ in range(40)]
    gate.touch()
    ended = running.ended()
    for client in clients:
        client.close()
    assert ended.code == 0
    assert "Traceback" not in ended.err


def test_a_run_that_is_stopped_finishes_its_episodes_and_resumes(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate))
    workshop.wait_for(lambda: state(workshop, "pause")["running"] == 2)
    told = workshop.succeeds("steer", str(workshop.run), "stop")
    assert "2 episodes running, 2 concurrent, paused, stopping" in told.out
    assert state(workshop)["stopping"] is True, "it is seen later, too"
    gate.touch()
    ended = running.ended()
    assert ended.code == 4, ended.text
    assert "drained: 2 episodes on disk" in ended.out
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert len(workshop.lines()) == 6


def test_a_paused_run_is_shown_as_that(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate))
    shown = ("status", "--json")

    def states() -> list[str]:
        return [each["state"] for each in json.loads(workshop.succeeds(*shown).out)["runs"]]

    assert states() == ["running"]
    state(workshop, "pause")
    assert states() == ["paused"]
    assert "paused (" in workshop.succeeds("status").out
    assert "paused, in process" in workshop.succeeds("show", str(workshop.run)).out
    state(workshop, "resume")
    assert states() == ["running"]
    gate.touch()
    assert running.ended().code == 0
    assert states() == ["completed"]


def test_the_directory_of_a_run_is_copied_while_it_runs_and_after_a_kill(
    workshop: Any, gate: Path
) -> None:
    """Programs that copy or pack a folder can't read a socket."""
    running = started(workshop, held(workshop, gate))
    live, dead = workshop.folder / "live", workshop.folder / "dead"
    shutil.copytree(workshop.run, live)
    refused = workshop.ale("steer", str(live), "pause")
    assert refused.code == 2, "a copy does not run, whatever it names"
    assert "the run is not running: it is interrupted" in refused.err
    running.signal(signal.SIGKILL)
    running.ended()
    shutil.copytree(workshop.run, dead)
    gate.touch()
    for run in (workshop.run, dead):
        workshop.succeeds("run", "--resume", str(run))
        assert not (run / NAMED).exists()


def test_fewer_steps_are_refused_with_what_can_be_done(workshop: Any, gate: Path) -> None:
    gate.touch()
    running = started_and_ended(workshop, held(workshop, gate), rollouts=1, steps=2)
    refused = workshop.ale("run", "--resume", running, "--set", "run.steps=1")
    assert refused.code == 2
    assert "run.steps: a resume can't lower it from 2 to 1" in refused.err
    assert "expected  more than 2" in refused.err
    assert "does not enter results" not in refused.err


def test_a_run_ends_after_its_step(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate), rollouts=2, steps=3)
    state(workshop, "stop-after-step")
    gate.touch()
    assert running.ended().code == 4
    assert {line["step"] for line in workshop.lines()} == {0}
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert len(workshop.lines()) == 6


def test_a_cancelled_episode_is_broken_by_a_person_and_not_tried_again(
    workshop: Any, gate: Path
) -> None:
    running = started(workshop, held(workshop, gate), retries=3, stop_after_broken=1)
    run = str(workshop.run)
    workshop.wait_for(lambda: [e["stage"] for e in state(workshop)["episodes"]] == ["agent"] * 2)
    assert {each["id"] for each in state(workshop)["episodes"]} == {"0-t-0", "0-t-1"}
    assert "0-t-1    agent" in workshop.succeeds("steer", run).out
    refused = workshop.ale("steer", run, "cancel", "0-t-11")
    assert refused.code == 2
    assert "no episode '0-t-11' is running" in refused.err
    assert "did you mean '0-t-1'?" in refused.err
    state(workshop, "cancel", "0-t-1")
    workshop.wait_for(lambda: len(workshop.lines()) == 1)
    [cancelled] = workshop.lines()
    assert cancelled["id"] == "0-t-1"
    assert (cancelled["failure"]["stage"], cancelled["failure"]["kind"]) == (
        "agent",
        "CancelledByUserError",
    )
    assert cancelled.get("reward") is None
    assert not cancelled.get("earlier_failures")
    gate.touch()
    ended = running.ended()
    assert ended.code == 3, "the others go on, and do not break"
    assert "CancelledByUserError: a person cancelled it, with 'ale steer'" in ended.out
    assert len(workshop.lines()) == 6
    [event] = [e for e in workshop.lines("events.jsonl") if e["event"] == "steered"]
    assert (event["action"], event["episode"]) == ("cancel", "0-t-1")


def test_a_policy_is_evaluated_when_that_is_asked_for_and_after_a_kill_too(
    workshop: Any, gate: Path
) -> None:
    """After step 0 of 3, where the config wants an evaluation at the start and the end alone."""
    slow, free = workshop.folder / "slow", workshop.folder / "free"
    wait = f"if [ -e {slow} ]; then {workshop.until(free)}; fi; touch done"
    workshop.task("t")
    for name in ("quick", "held"):
        criteria = [{"type": "command_exit_code", "command": "true"}]
        task = {"id": name, "goal": "Do it.", "success_criteria": criteria}
        workshop.write(f"evaluation/{name}.yaml", task)
    workshop.scripted(
        {
            "tasks": {"held": [[{"shell": wait}, FINISH]], "quick": [[FINISH]]},
            "default": held(workshop, gate),
        },
        trainer={"type": "export", "path": "rows"},
        evaluation={
            "tasks": {"type": "tbp", "path": "evaluation"},
            "every": 10,
            "temperatures": [0],
        },
        run={"rollouts": 2, "steps": 3},
    )
    running = workshop.start("run", "run.yaml")
    workshop.wait_for(lambda: workshop.runs and len(workshop.lines()) == 2)
    slow.touch()
    assert state(workshop, "evaluate")["evaluates_after_step"] is True
    gate.touch()
    workshop.wait_for(lambda: len(workshop.lines()) == 5)
    running.signal(signal.SIGKILL)
    running.ended()
    free.touch()
    workshop.succeeds("run", "--resume", str(workshop.run))
    events = workshop.lines("events.jsonl")
    assert [e["step"] for e in events if e["event"] == "evaluation_finished"] == [0, 1, 3]


def test_what_can_t_be_asked_is_refused(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate))
    run = str(workshop.run)
    assert workshop.ale("steer", run, "concurrency").code == 2
    assert workshop.ale("steer", run, "pause", "3").code == 2
    assert workshop.ale("steer", run, "cancel").code == 2
    assert "a number of at least 1" in workshop.ale("steer", run, "concurrency", "0").err
    assert "a number of at least 1" in workshop.ale("steer", run, "concurrency", "many").err
    assert "no section evaluation" in workshop.ale("steer", run, "evaluate").err
    assert "Invalid value" in workshop.ale("steer", run, "halt").err
    assert "did you mean 'resume'?" in workshop.ale("steer", run, "resum").err
    for request in (b"[]\n", b'{"action": "concurrency", "to": true}\n', b"x" * 9000 + b"\n"):
        with connected(workshop) as made:
            made.sendall(request)
            answer = made.makefile("rb").readline()
            assert b"error" in answer or not answer
    assert state(workshop, "resume")["concurrency"] == 2
    gate.touch()
    assert running.ended().code == 0
    late = workshop.ale("steer", run, "pause")
    assert late.code == 2
    assert "the run is not running: it is completed" in late.err
    nothing = workshop.ale("steer", "runs/nothing", "pause")
    assert nothing.code == 2
    assert "runs/nothing: no such directory" in nothing.err


OTHER = """
import os, socket, sys
os.setgid(65534), os.setuid(65534)
made = socket.socket(socket.AF_UNIX)
made.settimeout(20)
try:
    made.connect(sys.argv[1])
    made.sendall(b'{"action": "stop"}\\n')
    print(made.makefile("rb").readline())
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_another_user_is_not_heard(workshop: Any, gate: Path, mode: int) -> None:
    """Even if the modes of socket and folders let him in."""
    running = started(workshop, held(workshop, gate))
    path = Path((workshop.run / NAMED).read_text())
    closed = (each for each in path.parents if not each.stat().st_mode & 0o001)
    for folder in closed if mode == 0o666 else ():
        folder.chmod(0o711)
    path.chmod(mode)
    asked = [sys.executable, "-c", OTHER, str(path)]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.strip() in ("PermissionError", "b''", "ConnectionResetError", "BrokenPipeError")
    gate.touch()
    assert running.ended().code == 0
    assert len(workshop.lines()) == 6


def changes(workshop: Any) -> list[dict[str, Any]]:
    return [e for e in workshop.lines("events.jsonl") if e["event"] == "concurrency"]


def test_a_run_finds_how_many_episodes_are_worth_it(workshop: Any) -> None:
    """One command runs at a time, as with a server that answers one request."""
    script = [*[{"shell": f"flock {workshop.folder}/slot sleep 0.02"}] * 3, FINISH]
    workshop.task("t")
    run = {"rollouts": 100, "concurrency": "auto"}
    workshop.scripted({"default": script}, run=run)
    ended = workshop.succeeds("run", "run.yaml")
    assert "8 concurrent at first" in ended.err
    made = changes(workshop)
    assert (made[0]["before"], made[0]["limit"], made[0]["proved"]) == (8, 16, 8)
    assert made[1]["before"] == 16
    assert "times the throughput of 8 with 16" in made[1]["why"]
    shown = workshop.succeeds("show", str(workshop.run)).out
    assert f"concurrency  {made[-1]['proved']} at once  (" in shown
    assert len(workshop.lines()) == 100


def test_a_number_ends_auto_and_auto_begins_again(workshop: Any, gate: Path) -> None:
    running = started(workshop, held(workshop, gate), concurrency="auto", rollouts=20)
    workshop.wait_for(lambda: state(workshop)["running"] == 8)
    assert state(workshop)["auto"] is True
    assert "8 concurrent (auto)" in workshop.succeeds("steer", str(workshop.run)).out
    fixed = state(workshop, "concurrency", "10")
    assert (fixed["concurrency"], fixed["auto"]) == (10, False)
    again = state(workshop, "concurrency", "auto")
    assert (again["concurrency"], again["auto"]) == (10, True)
    refused = workshop.ale("steer", str(workshop.run), "concurrency", "fast")
    assert refused.code == 2
    assert "a number of at least 1, or auto, found 'fast'" in refused.err
    gate.touch()
    assert running.ended().code == 0
    assert len(workshop.lines()) == 20


def test_the_number_that_holds_is_shown(workshop: Any, gate: Path) -> None:
    """A number that somebody has fixed is not what `auto` found, and auto again finds another."""
    script = [*[{"shell": f"flock {workshop.folder}/slot sleep 0.02"}] * 9, *held(workshop, gate)]
    running = started(workshop, script, concurrency="auto", rollouts=60)
    workshop.wait_for(lambda: changes(workshop), 60)

    def shown() -> str:
        lines = workshop.succeeds("show", str(workshop.run)).out.splitlines()
        return next(line for line in lines if line.startswith("concurrency"))

    assert " at once  (" in shown()
    state(workshop, "concurrency", "3")
    assert shown().startswith("concurrency  3 at once, as was asked  (auto had come to ")
    state(workshop, "pause")
    assert shown().startswith("concurrency  3 at once, as was asked")
    found = state(workshop, "concurrency", "auto")["concurrency"]
    assert shown().startswith(f"concurrency  {found} at once, with which auto begins")
    gate.touch()
    state(workshop, "resume")
    assert running.ended().code == 0


def test_any_concurrency_samples_the_same_episodes_for_each_step(workshop: Any) -> None:
    """What a step learns from depends on no number of episodes at once."""
    for name in "abc":
        workshop.task(name)
    made = []
    for concurrency in (1, "auto"):
        workshop.scripted(
            {"default": [{"shell": "sleep 0.0$((RANDOM % 5)); touch done"}, FINISH]},
            trainer={"type": "export", "path": f"rows-{concurrency}"},
            run={
                "rollouts": 4,
                "steps": 3,
                "tasks_per_step": 2,
                "concurrency": concurrency,
                "directory": f"runs-{concurrency}",
            },
        )
        workshop.succeeds("run", "run.yaml")
        (run,) = (workshop.folder / f"runs-{concurrency}").iterdir()
        rows = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
        made.append(sorted((row["step"], row["id"], row["reward"]) for row in rows))
    assert made[0] == made[1]
    assert len(made[0]) == 24


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"concurrency": "aut"}, "expected a whole number or auto, found the text"),
        ({"concurrency": 0}, "a number of at least 1, or auto"),
        ({"concurrency": "auto", "deterministic": True}, "run.deterministic: false"),
    ],
)
def test_another_word_for_a_number_is_an_error(
    workshop: Any, given: dict[str, Any], said: str
) -> None:
    workshop.task("t")
    workshop.scripted({"default": [FINISH]}, run=given)
    refused = workshop.ale("check", "run.yaml")
    assert refused.code == 2
    assert "run.concurrency" in refused.err
    assert said in refused.err
