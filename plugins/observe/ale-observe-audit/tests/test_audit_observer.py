"""The audit of a run, and the run by its audit."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ale._cli.main import cli
from ale._store import Redactor, RunDirectory
from ale.plugin import BuildContext
from ale.testing.observer import (
    ObserverContract,
    ended,
    evaluated,
    finished,
    notify,
    register,
    report,
    stages,
    started,
    steered,
)
from ale.types import Task
from ale_observe_audit.chain import NAME
from ale_observe_audit.options import AuditOptions
from ale_observe_audit.plugin import ale_observers

Ale = Callable[..., Result]


def build(**options: Any) -> object:
    [component] = ale_observers()
    return component.build(AuditOptions(**options), BuildContext())


class TestAudit(ObserverContract):
    @pytest.fixture(params=[False, True], ids=["file", "disk"])
    def observer(self, request: pytest.FixtureRequest) -> object:
        return build(fsync=request.param)

    @pytest.mark.long
    async def test_holds_no_more_after_ten_thousand_episodes(
        self, observer: object, tmp_path: Path
    ) -> None:
        await super().test_holds_no_more_after_ten_thousand_episodes(observer, tmp_path)


@pytest.fixture
def ale() -> Ale:
    def call(*arguments: object) -> Result:
        return CliRunner().invoke(cli, [str(each) for each in arguments])

    return call


def session(path: Path, numbers: range, *, end: bool = True) -> None:
    """Run some episodes with an audit, in a new run or a stored one."""
    if path.exists():
        store = RunDirectory.resume(path, Redactor({}))
    else:
        config = {"chunker": {"type": "demo"}, "credit": {"type": "demo", "gamma": 0.95}}
        manifest = {"run_id": path.name, "n_tasks": 1, "config": config}
        store = RunDirectory.create(path, manifest, Redactor({}))
        store.add_task(Task(id="demo", goal="Do it."))
    manager = register(build())
    notify(manager, [started(path)])
    for number in numbers:
        event = ended(number, None if number == 2 else 1.0)
        store.add_episode(event.episode)
        notify(manager, [*stages(number), event])
    notify(manager, [report(0), *evaluated(1, 2)[-1:]])
    if end:
        store.set_outcome({"outcome": "completed", "seconds": 1.0})
        notify(manager, [finished(path)])
    store.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of four episodes, which has ended."""
    session(tmp_path / "run", range(4))
    return tmp_path / "run"


def problems(ale: Ale, run: Path, *more: object) -> str:
    done = ale("audit", "verify", run, *more)
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


def test_every_event_is_a_line(run: Path) -> None:
    lines = [json.loads(line) for line in (run / NAME).read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert events[0] == "run_started"
    assert events.count("episode_stage") == 24
    assert events.count("episode_finished") == 4
    assert events[-3:] == ["step_finished", "evaluation_finished", "run_finished"]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    stored = [line["reward"] for line in lines if line["event"] == "episode_finished"]
    assert stored == [1.0, 1.0, None, 1.0]


def test_what_a_person_asked_of_the_run_is_a_line(tmp_path: Path) -> None:
    manager = register(build())
    notify(manager, [started(tmp_path), steered("pause", paused=True), finished(tmp_path)])
    line = json.loads((tmp_path / NAME).read_text().splitlines()[1])
    assert (line["event"], line["action"], line["paused"]) == ("run_steered", "pause", True)
    assert (line["episode"], line["concurrency"], line["auto"]) == (None, 4, False)


def test_an_event_is_on_disk_when_its_hook_returns(tmp_path: Path) -> None:
    manager = register(build())
    notify(manager, [started(tmp_path)])
    for number, event in enumerate(stages(0), 2):
        notify(manager, [event])
        assert (tmp_path / NAME).read_bytes().count(b"\n") == number


def test_no_text_of_an_error_is_written(run: Path) -> None:
    """Such a text can have a secret in it; the run masks these when it stores the episode."""
    assert "no network" in (run / "episodes.jsonl").read_text()
    assert "no network" not in (run / NAME).read_text()


def test_a_run_as_it_was_has_no_problem(run: Path, ale: Ale) -> None:
    done = ale("audit", "verify", run)
    assert done.exit_code == 0, done.output
    assert "4 episodes as stored, config and tasks as at the start" in done.stdout
    head = ale("audit", "head", run).stdout.strip()
    assert head in done.stdout
    assert ale("audit", "verify", run, "--head", head).exit_code == 0


def test_each_problem_is_named_with_file_and_line(run: Path, ale: Ale) -> None:
    lines = (run / NAME).read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b"0-demo-0", b"0-demo-9")
    del lines[9]
    lines[19], lines[20] = lines[20], lines[19]
    (run / NAME).write_bytes(b"".join(lines))
    said = problems(ale, run)
    assert "audit.jsonl:5: changed" in said
    assert "audit.jsonl:10: missing before this line: number 10" in said
    assert "audit.jsonl:20: reordered" in said
    assert "3 problems" in said


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("episodes.jsonl", b'"reward":1.0', b'"reward":0.9', "the episode 0-demo-0 is not as it"),
        ("manifest.json", b"0.95", b"0.99", "manifest.json: the config is not as it was"),
        ("tasks.jsonl", b"Do it.", b"Do it!", "tasks.jsonl: not as it was when the run started"),
    ],
)
def test_a_change_of_what_the_run_stored_is_named(
    run: Path, ale: Ale, name: str, before: bytes, after: bytes, message: str
) -> None:
    data = (run / name).read_bytes()
    assert before in data
    (run / name).write_bytes(data.replace(before, after, 1))
    assert message in problems(ale, run)


def test_an_episode_that_nobody_saw_is_named(run: Path, ale: Ale) -> None:
    with (run / "episodes.jsonl").open("ab") as file:
        file.write((run / "episodes.jsonl").read_bytes().splitlines(keepends=True)[0])
    assert "are in no line of the audit" in problems(ale, run)


def test_an_end_that_was_removed_is_seen_by_the_run(run: Path, ale: Ale) -> None:
    lines = (run / NAME).read_bytes().splitlines(keepends=True)
    for n in (len(lines) - 1, 12):
        (run / NAME).write_bytes(b"".join(lines[:n]))
        assert "lines at the end were removed" in problems(ale, run)
    (run / NAME).write_bytes(b"".join(lines)[:-1])
    assert f"audit.jsonl:{len(lines)}: incomplete" in problems(ale, run)


def test_a_file_that_was_written_again_is_seen_by_a_head_kept_elsewhere(
    run: Path, ale: Ale
) -> None:
    head = ale("audit", "head", run).stdout.strip()
    data = (run / "episodes.jsonl").read_bytes()
    (run / "episodes.jsonl").write_bytes(data.replace(b'"reward":1.0', b'"reward":0.9'))
    (run / NAME).unlink()
    again = register(build())
    stored = (run / "episodes.jsonl").rename(run / "kept")
    notify(again, [started(run)])
    stored.rename(run / "episodes.jsonl")
    notify(again, [ended(n, 0.9) for n in range(4)] + [finished(run)])
    assert ale("audit", "verify", run).exit_code == 0  # a whole chain: this is what it can't show
    assert "is not there: lines at the end were removed" in problems(ale, run, "--head", head)
    number, _, sha256 = ale("audit", "head", run).stdout.strip().partition(":")
    other = f"{number}:{head.partition(':')[2]}"
    assert "the file was written again" in problems(ale, run, "--head", other)
    assert len(sha256) == 64


def test_a_resumed_run_is_verified_as_one(tmp_path: Path, ale: Ale) -> None:
    run = tmp_path / "run"
    session(run, range(2), end=False)
    assert "what came last may be missing" in ale("audit", "verify", run).stdout
    with (run / NAME).open("ab") as file:
        file.write(b'{"seq":19,"at":0.0,"ev')  # killed while it wrote
    assert "incomplete" in problems(ale, run)
    session(run, range(2, 4))
    done = ale("audit", "verify", run)
    assert "4 episodes as stored" in done.stdout
    assert b'"event":"repaired"' in (run / NAME).read_bytes()


def test_a_removed_file_of_episodes_is_noticed(run: Path, ale: Ale) -> None:
    (run / "episodes.jsonl").unlink()
    done = ale("audit", "verify", run)
    assert done.exit_code == 2
    assert "episodes.jsonl: the file is gone, with 4 episodes" in done.stderr
    assert "as stored" not in done.stdout


def test_a_removed_episode_is_named_and_not_all_that_follow_it(run: Path, ale: Ale) -> None:
    path = run / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))
    found = problems(ale, run)
    assert "the episode 0-demo-1 is not as it was stored" in found
    assert "2 episodes as stored, but not where they were (first 0-demo-2, line" in found
    assert found.endswith("\n2 problems.\n")
    path.write_bytes(b"".join([*lines[:2], lines[3], lines[2]]))
    swapped = problems(ale, run)
    assert "2 episodes as stored, but not where they were (first 0-demo-2, line" in swapped
    assert swapped.endswith("\n1 problem.\n")


def test_episodes_that_a_resume_removed_are_not_missed(tmp_path: Path, ale: Ale) -> None:
    run = tmp_path / "run"
    session(run, range(3), end=False)
    lines = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (run / "episodes.jsonl").write_bytes(b"".join(lines[:1]))
    assert "0-demo-1 is not as it was stored" in problems(ale, run)
    session(run, range(1, 3))
    assert "3 episodes as stored" in ale("audit", "verify", run).stdout


def test_an_audit_that_began_later_says_what_it_has_not_seen(tmp_path: Path, ale: Ale) -> None:
    run = tmp_path / "run"
    session(run, range(2), end=False)
    (run / NAME).unlink()
    session(run, range(2, 4))
    size = len(b"".join((run / "episodes.jsonl").read_bytes().splitlines(keepends=True)[:2]))
    done = ale("audit", "verify", run)
    assert f"{size} bytes of episodes were stored while no audit was written" in done.stdout


def test_a_run_that_is_writing_is_not_called_incomplete(run: Path, ale: Ale) -> None:
    store = RunDirectory.resume(run, Redactor({}))
    with (run / NAME).open("ab") as file:
        file.write(b'{"seq"')
    assert ale("audit", "verify", run).exit_code == 0
    store.close()
    assert "incomplete" in problems(ale, run)


def test_a_run_without_an_audit_is_told_how_to_get_one(run: Path, ale: Ale) -> None:
    os.unlink(run / NAME)  # noqa: PTH108
    assert "observers: [{type: audit}]" in problems(ale, run)
    done = ale("audit", "head", run)
    assert done.exit_code == 2
    (run / NAME).write_bytes(b"")
    assert "lines at the end were removed" in problems(ale, run)


def test_a_line_of_somebody_elses_hand_is_a_problem_not_a_crash(run: Path, ale: Ale) -> None:
    from ale_observe_audit.chain import Chain

    chain = Chain(run / NAME, fsync=False, at=0.0)
    chain.append("run_started", 0.0)
    chain.close()
    assert "not what the observer writes of run_started" in problems(ale, run)


@pytest.mark.parametrize("head", ["abc", "x:00", "7"])
def test_a_head_is_a_number_and_a_hash(run: Path, ale: Ale, head: str) -> None:
    assert ale("audit", "verify", run, "--head", head).exit_code == 2
