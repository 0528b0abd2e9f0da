"""The database says what the run directories say, whatever happens to these."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import func, select, text

from ale._store import Redactor, RunDirectory
from ale.errors import StoreError
from ale.testing.builders import turn
from ale.types import Score, Task, TokenTrace, Trajectory
from ale_look.store import schema, writing
from ale_look.store.database import Database, open_database
from ale_look.store.indexing import Indexer
from ale_look.store.tagging import change_tags


def rows(database: Database, table: Any, *columns: str) -> list[tuple[Any, ...]]:
    with database.reading() as connection:
        found = connection.execute(select(*(table.c[name] for name in columns)))
        return sorted(map(tuple, found), key=repr)


def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows but for ids, which depend on the order of indexing."""
    ids = {"id", "run", "task", "episode", "error", "path"}
    columns = {
        name: [column.name for column in table.c if column.name not in ids]
        for name, table in schema.metadata.tables.items()
    }
    tables = schema.metadata.tables
    return {name: rows(database, tables[name], *some) for name, some in columns.items() if some}


def test_a_run_that_this_user_can_not_read_is_named_and_stays_in_the_database(
    folder: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of another user, whose database this is."""
    Indexer(database).update(folder)
    scandir = os.scandir

    def refusing(path: str) -> Any:  # root may read all
        if Path(path).name == "first":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    done = Indexer(database).update(folder)
    assert done.problems == [f"{folder / 'first'} can't be read: Permission denied"]
    assert done.removed == 0
    assert rows(database, schema.runs, "run_id") == [("first",)]


def break_manifest(run: Path, **fields: Any) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, **fields}))


def break_episode(run: Path, old: str, new: object) -> None:
    text = (run / "episodes.jsonl").read_text()
    assert old in text
    (run / "episodes.jsonl").write_text(text.replace(old, f"{old.partition(':')[0]}:{new}", 1))


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def write(path: Path, text: str) -> None:
    path.write_text(text)


DEEP = "[" * 100_000 + "]" * 100_000
ODD = '{"event": "evaluation_finished", "at": 1, "step": 0, "temperature": [1]}\n'
BROKEN: dict[str, Callable[[Path], None]] = {
    "step": lambda run: break_episode(run, '"step":0', 2**63),
    "seed": lambda run: break_episode(run, '"seed":0', 10**30),
    "tokens": lambda run: break_episode(run, '"prompt_tokens":0', 2**64),
    "tasks": lambda run: break_manifest(run, n_tasks=2**63),
    "deep manifest": lambda run: write(run / "manifest.json", '{"a":' + DEEP + "}"),
    "deep episode": lambda run: write(run / "episodes.jsonl", DEEP + "\n"),
    "deep tags": lambda run: write(run / "tags.json", DEEP),
    "no mapping": lambda run: break_manifest(run, config={"run": None}),
    "pipe manifest": lambda run: pipe(run / "manifest.json"),
    "pipe episodes": lambda run: pipe(run / "episodes.jsonl"),
    "pipe tags": lambda run: pipe(run / "tags.json"),
    "device": lambda run: link(run / "events.jsonl", "/dev/null"),
    "circle": lambda run: link(run / "episodes.jsonl", "episodes.jsonl"),
    "evaluation": lambda run: write(run / "events.jsonl", ODD),
}


@pytest.fixture
def impatient() -> Iterator[None]:
    """Fails a test that waits, as for a writer of a pipe."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", BROKEN)
def test_a_bad_run_is_named_and_hides_no_other(
    tmp_path: Path, make_run: Any, ale: Any, how: str
) -> None:
    for name in ("a", "b", "c"):
        make_run(tmp_path / "runs" / name).close()
    BROKEN[how](tmp_path / "runs" / "b")
    done = ale("runs", "list")
    assert done.exit_code == 0, done.output
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert {"a", "c"} <= {*listed}, done.output
    assert str(tmp_path / "runs" / "b") in done.stderr
    assert "Traceback" not in done.output


def test_every_run_episode_turn_score_and_step_is_a_row(folder: Path, database: Database) -> None:
    done = Indexer(database).update(folder)
    assert (done.found, done.runs, done.episodes, done.problems) == (1, 1, 3, [])
    runs = rows(database, schema.runs, "run_id", "outcome", "n_episodes", "n_broken", "mean_reward")
    assert runs == [("first", "completed", 3, 1, 0.625)]
    assert rows(
        database, schema.episodes, "episode_id", "reward", "model", "n_turns", "failure"
    ) == [
        ("0-rename-0", 1.0, "m", 2, None),
        ("0-rename-1", 0.25, "m", 2, None),
        ("0-rename-2", None, "m", 2, "agent"),
    ]
    assert len(rows(database, schema.turns, "text")) == 6
    scores = rows(database, schema.scores, "criterion", "passed", "value")
    assert scores == [("exists", False, 0.5), ("exists", True, 0.5)]
    assert rows(database, schema.steps, "step", "at") == [(0, 5.0)]
    assert rows(database, schema.metrics, "name", "value") == [("loss", 0.5), ("odd", None)]
    assert rows(database, schema.evaluations, "step", "n_succeeded") == [(1, 3)]
    assert ("llm.type", "openai") in rows(database, schema.settings, "key", "value")
    assert rows(database, schema.errors, "text") == [
        ("agent: LLMError: connection refused",),
        ("shell: exit code 2",),
    ]
    assert Indexer(database).update(folder).runs == 0, "nothing is new"


def test_the_mean_of_huge_rewards_is_none_of_infinity(
    folder: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    store = make_run(folder / "huge", n=0)
    for number, reward in enumerate((1.5e308, 1.0e308, 1.25e308)):
        store.add_episode(attempt(number, reward=reward, failure=None))
    store.close()
    Indexer(database).update(folder)
    found = rows(database, schema.runs, "run_id", "mean_reward")
    assert found == [("first", 0.625), ("huge", pytest.approx(1.25e308))]


def test_successes_are_of_training_episodes_that_began_where_their_task_begins(
    tmp_path: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=3)
    store.add_episode(attempt(3, split="evaluation"))
    store.add_episode(attempt(6, start="0123456789abcdef"))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    counted = rows(
        database, schema.runs, "n_episodes", "n_broken", "n_graded", "n_succeeded", "mean_reward"
    )
    assert counted == [(5, 1, 2, 1, 0.625)]


def test_a_step_or_evaluation_that_is_made_again_is_there_once(
    folder: Path, database: Database
) -> None:
    indexer = Indexer(database)
    indexer.update(folder)
    store = RunDirectory.resume(folder / "first", Redactor({}))
    store.add_event("step_finished", 7.0, step=0, metrics={"loss": 0.25})
    about = {"policy_version": 1, "n_graded": 4, "n_succeeded": 2, "seconds": 1.0}
    for temperature, mean in ((0, 0.5), (1, 0.25)):
        again = {**about, "step": 1, "temperature": temperature, "mean_reward": mean}
        store.add_event("evaluation_finished", 8.0, **again)
    store.close()
    indexer.update(folder)
    assert rows(database, schema.steps, "step", "at") == [(0, 7.0)]
    assert rows(database, schema.metrics, "name", "value") == [("loss", 0.25)]
    measured = rows(database, schema.evaluations, "step", "temperature", "mean_reward")
    assert measured == [(1, 0.0, 0.5), (1, 1.0, 0.25)]


def test_an_episode_has_all_its_errors_and_scores(
    tmp_path: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=0)
    scores = [Score(criterion=name, passed=False, value=0.5) for name in ("a", "b")]
    store.add_episode(attempt(1, reward=None, failure=attempt(2).failure, scores=scores))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    assert len(rows(database, schema.episode_errors, "error")) == 2
    assert rows(database, schema.scores, "position", "criterion") == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("n", [2, 3, 6, 7])
def test_a_run_that_is_read_in_several_transactions_is_whole_and_counted(
    tmp_path: Path, database: Database, make_run: Any, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    monkeypatch.setattr("ale_look.store.indexing._BATCH", 3)
    make_run(tmp_path / "runs" / "r", n=n).close()
    assert Indexer(database).update(tmp_path / "runs").episodes == n
    assert len(rows(database, schema.episodes, "id")) == n
    assert rows(database, schema.runs, "n_episodes") == [(n,)]


def test_a_turn_is_all_that_was_said_but_the_systems_prompt(
    tmp_path: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    said = attempt(0).trajectory.turns[0]
    answer = evolve(said.completion.message, reasoning="Hmm.")
    completions = [
        evolve(said.completion, message=answer, tokens=tokens_of(versions))
        for versions in ((4, 3), (5, 5))
    ]
    turns = tuple(evolve(said, completion=completion) for completion in completions)
    store = make_run(tmp_path / "runs" / "r", n=0)
    store.add_episode(attempt(0, trajectory=Trajectory(turns=turns)))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    text = 'Go\nHmm.\nI look at file0.\nshell {"command": "ls"}\na'
    assert rows(database, schema.turns, "turn", "text") == [(0, text), (1, text)]
    assert rows(database, schema.episodes, "policy_version") == [(3,)]


def tokens_of(versions: tuple[int, ...]) -> TokenTrace:
    """Tokens that these versions of a policy have sampled."""
    n = len(versions)
    return TokenTrace(
        prompt_ids=(1,), output_ids=(2,) * n, logprobs=(-1.0,) * n, policy_versions=versions
    )


def test_hidden_folders_are_left_out_and_equal_prompts_are_not_one_task(
    tmp_path: Path, database: Database, make_run: Any
) -> None:
    make_run(tmp_path / "runs" / ".hidden" / "r").close()
    store = make_run(tmp_path / "runs" / "r", n=0)
    store.add_task(Task(id="again", goal="Rename the file a to b."), "train")
    store.close()
    assert Indexer(database).update(tmp_path / "runs").found == 1
    tasks = [task for (task,) in rows(database, schema.tasks, "task_id")]
    assert tasks == ["again", "count", "rename"]
    assert len(rows(database, schema.run_tasks, "task_id")) == 5


@pytest.mark.parametrize(("name", "read"), [("add_episodes", (3, 0)), ("add_events", (7, 3))])
def test_an_update_that_fails_half_way_is_continued(
    tmp_path: Path,
    database: Database,
    make_run: Any,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    read: tuple[int, int],
) -> None:
    monkeypatch.setattr("ale_look.store.indexing._BATCH", 3)
    store = make_run(tmp_path / "runs" / "r", n=7)
    for step in range(7):
        store.add_event("step_finished", 1.0, step=step, metrics={})
    store.close()
    plain, calls = getattr(writing, name), 0

    def failing(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StoreError("the disk is full")
        plain(*arguments)

    def found() -> tuple[int, int]:
        episodes = rows(database, schema.episodes, "episode_id")
        return len(episodes), len(rows(database, schema.steps, "step"))

    monkeypatch.setattr(writing, name, failing)
    with pytest.raises(StoreError, match="the disk is full"):
        Indexer(database).update(tmp_path / "runs")
    assert found() == read
    Indexer(database).update(tmp_path / "runs")
    assert found() == (7, 7)


def test_an_episode_is_of_the_task_of_its_split(
    tmp_path: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=0)
    for number, split in enumerate(("train", "evaluation")):
        store.add_task(Task(id="both", goal=f"For {split}."), split)
        store.add_episode(attempt(number, task_id="both", split=split))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    task, of = schema.tasks.c, schema.episodes.c
    with database.reading() as connection:
        query = select(of.split, task.prompt).join_from(schema.episodes, schema.tasks)
        found = sorted(map(tuple, connection.execute(query)))
    assert found == [("evaluation", "For evaluation."), ("train", "For train.")]


def test_what_is_added_to_a_running_run_is_read_at_the_next_update(
    folder: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    store = make_run(folder / "second", n=0)
    indexer = Indexer(database)
    assert indexer.update(folder).episodes == 3
    store.add_episode(attempt(7))
    with (folder / "second" / "episodes.jsonl").open("ab") as file:
        file.write(b'{"schema":1,"id":"half')  # as seen while a line is being written
    assert indexer.update(folder).episodes == 1
    assert indexer.update(folder).runs == 0
    store.close()


def test_an_update_in_any_pieces_gives_the_same_rows_as_one(
    tmp_path: Path, make_run: Any, attempt: Any
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=0)
    pieces = open_database(str(tmp_path / "pieces.sqlite"))
    for number in range(9):
        store.add_episode(attempt(number))
        store.add_event("step_finished", float(number), step=number, metrics={"loss": 1.0})
        Indexer(pieces).update(tmp_path / "runs")
    whole = open_database(str(tmp_path / "whole.sqlite"))
    Indexer(whole).update(tmp_path / "runs")
    assert everything(pieces) == everything(whole)
    store.close()


def test_episodes_that_a_resume_removed_are_removed_here(folder: Path, database: Database) -> None:
    indexer = Indexer(database)
    indexer.update(folder)
    path = folder / "first" / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    again = lines[1].replace(b'"reward":0.25', b'"reward":0.75')
    path.write_bytes(lines[0] + again + again.replace(b"0-rename-1", b"0-rename-8"))
    indexer.update(folder)
    found = rows(database, schema.episodes, "episode_id", "reward")
    assert found == [("0-rename-0", 1.0), ("0-rename-1", 0.75), ("0-rename-8", 0.75)]
    assert len(rows(database, schema.turns, "text")) == 6


def test_of_an_episode_that_is_stored_twice_the_later_line_counts(
    folder: Path, database: Database
) -> None:
    indexer = Indexer(database)
    indexer.update(folder)
    with (folder / "first" / "episodes.jsonl").open("ab") as file:
        line = (folder / "first" / "episodes.jsonl").read_bytes().splitlines()[1]
        file.write(line.replace(b'"reward":0.25', b'"reward":0.5') + b"\n")
    assert indexer.update(folder).episodes == 1
    assert ("0-rename-1", 0.5) in rows(database, schema.episodes, "episode_id", "reward")
    assert rows(database, schema.runs, "n_episodes") == [(3,)]


def test_a_run_that_is_gone_leaves_no_row(folder: Path, database: Database, make_run: Any) -> None:
    make_run(folder / "second").close()
    indexer = Indexer(database)
    indexer.update(folder)
    shutil.rmtree(folder / "first")
    assert indexer.update(folder).removed == 1
    assert rows(database, schema.runs, "run_id") == [("second",)]
    shutil.rmtree(folder / "second")
    indexer.update(folder)
    left = {name: len(found) for name, found in everything(database).items()}
    assert set(left.values()) == {0}, left


def test_an_update_ends_though_the_run_grows_as_fast_as_it_is_read(
    tmp_path: Path, make_run: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=3)
    plain = writing.add_episodes

    def growing(*arguments: Any) -> None:
        plain(*arguments)
        if len(store.index) < 30:  # an update that follows it would end, too
            store.add_episode(attempt(len(store.index)))

    monkeypatch.setattr(writing, "add_episodes", growing)
    database = open_database(str(tmp_path / "index.sqlite"))
    assert [Indexer(database).update(tmp_path / "runs").episodes for _ in range(3)] == [3, 1, 1]
    store.close()


def test_a_run_is_one_by_whatever_path_it_is_reached(
    folder: Path, tmp_path: Path, database: Database
) -> None:
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, tmp_path / "link", folder / ".." / "runs"):
        Indexer(database).update(path)
    assert rows(database, schema.runs, "path") == [(str(folder.resolve() / "first"),)]


def test_runs_of_another_folder_stay(
    folder: Path, tmp_path: Path, database: Database, make_run: Any
) -> None:
    make_run(tmp_path / "runs2" / "other").close()
    for each in ("runs", "runs2", "runs"):
        Indexer(database).update(tmp_path / each)
    assert rows(database, schema.runs, "run_id") == [("first",), ("other",)]


def test_runs_of_another_machine_stay(
    folder: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(postgresql)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    Indexer(database).update(folder)
    monkeypatch.undo()
    shutil.rmtree(folder / "first")
    assert Indexer(database).update(folder).removed == 0
    assert rows(database, schema.runs, "run_id", "host") == [("first", "elsewhere")]
    database.close()


def test_a_damaged_run_is_named_and_the_others_are_read(
    folder: Path, database: Database, make_run: Any
) -> None:
    make_run(folder / "second").close()
    path = folder / "first" / "episodes.jsonl"
    path.write_bytes(path.read_bytes() + b"{}\n")
    (folder / "third").mkdir()
    (folder / "third" / "manifest.json").write_text("{")
    done = Indexer(database).update(folder)
    assert done.runs == 1
    assert len(done.problems) == 2
    assert "first/episodes.jsonl:4" in done.problems[0]
    assert "third/manifest.json" in done.problems[1]


def test_a_run_whose_path_is_not_utf_8_is_named_and_the_others_are_read(
    folder: Path, database: Database, make_run: Any
) -> None:
    odd = folder / os.fsdecode(b"b\xfcro")
    make_run(folder / "second").close()
    (folder / "second").rename(odd)
    done = Indexer(database).update(folder)
    (problem,) = done.problems
    assert (done.runs, "b?ro: a path that is not UTF-8" in problem) == (1, True)


def test_text_that_a_database_can_not_hold_is_replaced(
    tmp_path: Path, database: Database, make_run: Any, attempt: Any
) -> None:
    store = make_run(tmp_path / "runs" / "r", n=0)
    odd = turn("nul \0 emoji \U0001f600 long " + "x" * 100_000, calls=[("a\0b", "{}")])
    store.add_episode(attempt(0, trajectory=Trajectory(turns=(odd,)), sandbox="\0", seed=2**53 - 1))
    store.close()
    Indexer(database).update(tmp_path / "runs")
    [(said,)] = rows(database, schema.turns, "text")
    assert said.startswith("nul \ufffd emoji \U0001f600 long xxx")
    assert 32_000 <= len(said) < 33_000
    assert rows(database, schema.tools, "tool") == [("a\ufffdb",)]


def test_a_task_that_only_an_episode_names_is_one(
    folder: Path, database: Database, attempt: Any
) -> None:
    store = RunDirectory.resume(folder / "first", Redactor({}))
    store.add_episode(attempt(4, task_id="unlisted"))
    store.close()
    Indexer(database).update(folder)
    assert ("unlisted", "") in rows(database, schema.tasks, "task_id", "prompt")


def test_tags_are_read_from_the_run(folder: Path, database: Database) -> None:
    indexer = Indexer(database)
    indexer.update(folder)
    assert change_tags(folder / "first", add=["new"]) == ["new"]
    assert change_tags(folder / "first", add=["best"]) == ["best", "new"]
    indexer.update(folder)
    assert rows(database, schema.tags, "tag") == [("best",), ("new",)]
    change_tags(folder / "first", remove=["new", "best"])
    indexer.update(folder)
    assert rows(database, schema.tags, "tag") == []


@pytest.mark.parametrize(("tag", "later"), [("new", True), ("longer", False)])
def test_a_file_that_changes_in_size_or_time_alone_is_read_again(
    folder: Path, database: Database, tag: str, later: bool
) -> None:
    indexer, path = Indexer(database), folder / "first" / "tags.json"
    change_tags(folder / "first", add=["old"])
    os.utime(path, (1e9, 1e9))
    indexer.update(folder)
    change_tags(folder / "first", add=[tag], remove=["old"])
    os.utime(path, (1e9 + later, 1e9 + later))
    indexer.update(folder)
    assert rows(database, schema.tags, "tag") == [(tag,)]


INDEX = """
import sys
from pathlib import Path
from ale_look.store.database import open_database
from ale_look.store.indexing import Indexer

for _ in range(int(sys.argv[3])):
    Indexer(open_database(sys.argv[2])).update(Path(sys.argv[1]))
"""


def indexing(folder: Path, where: str, times: int = 1) -> subprocess.Popen[bytes]:
    """Another process that updates the database."""
    command = [sys.executable, "-c", INDEX, str(folder), where, str(times)]
    return subprocess.Popen(command)


def test_processes_that_index_a_running_run_at_once_agree(
    tmp_path: Path, where: str, make_run: Any, attempt: Any
) -> None:
    """The database does not exist yet: they also make its tables at once."""
    store = make_run(tmp_path / "runs" / "r", n=20)
    both = [indexing(tmp_path / "runs", where, 5) for _ in range(2)]
    for number in range(20, 100):
        store.add_episode(attempt(number))
        time.sleep(0.01)
    for process in both:
        process.wait()
    assert [process.returncode for process in both] == [0, 0]
    store.close()
    found, again = open_database(where), open_database(str(tmp_path / "again.sqlite"))
    for database in (found, again):
        Indexer(database).update(tmp_path / "runs")
    assert everything(found)["episodes"] == everything(again)["episodes"]
    assert everything(found)["turns"] == everything(again)["turns"]
    found.close()


def test_an_update_that_is_killed_is_continued(tmp_path: Path, make_run: Any) -> None:
    make_run(tmp_path / "runs" / "r", n=700).close()
    where = str(tmp_path / "index.sqlite")
    database = open_database(where)
    process = indexing(tmp_path / "runs", where)
    n = 0
    while process.poll() is None and n == 0:
        with database.reading() as connection:
            n = connection.scalar(select(func.count()).select_from(schema.episodes)) or 0
    process.kill()
    process.wait()
    assert n in (500, 700)
    Indexer(database).update(tmp_path / "runs")
    assert len(rows(database, schema.episodes, "episode_id")) == 700
    database.close()


def test_runs_of_two_machines_may_have_one_path(
    tmp_path: Path, where: str, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of PostgreSQL has those of both; a file of SQLite is beside the directories."""
    make_run(tmp_path / "runs" / "r").close()
    database = open_database(where)
    Indexer(database).update(tmp_path / "runs")
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    Indexer(database).update(tmp_path / "runs")
    hosts = {host for (host,) in rows(database, schema.runs, "host")}
    episodes = len(rows(database, schema.episodes, "id"))
    if database.sqlite:
        assert (len(hosts), episodes) == (1, 3)
    else:
        assert (len(hosts), episodes) == (2, 6)
        Indexer(database).forget([tmp_path / "runs" / "r"])
        assert {host for (host,) in rows(database, schema.runs, "host")} == hosts - {"elsewhere"}
        assert len(rows(database, schema.episodes, "id")) == 3
    database.close()


def test_a_container_that_is_started_again_with_its_name_lists_a_run_once(
    folder: Path, postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(postgresql)
    monkeypatch.setenv("ALE_HOST_NAME", "trainer")
    for name in ("3f1c9a", "b07d42"):
        monkeypatch.setattr("platform.node", lambda name=name: name)
        Indexer(database).update(folder)
    assert rows(database, schema.runs, "run_id", "host") == [("first", "trainer")]
    database.close()


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0001", "version 0001, from before the first release; make a new"),
        ("9999", "newer version of ale-look"),
    ],
)
def test_a_database_of_a_version_that_is_too_old_or_newer_is_refused(
    tmp_path: Path, version: str, said: str
) -> None:
    where = str(tmp_path / "index.sqlite")
    database = open_database(where)
    with database.writing() as connection:
        connection.execute(text(f"UPDATE store_version SET version_num = '{version}'"))
    database.close()
    with pytest.raises(StoreError, match=said):
        open_database(where)


@pytest.mark.parametrize("version", ["0000", "garbage", ""])
def test_a_database_of_a_version_that_never_was_is_refused(tmp_path: Path, version: str) -> None:
    where = str(tmp_path / "index.sqlite")
    database = open_database(where)
    with database.writing() as connection:
        connection.execute(text("UPDATE store_version SET version_num = :v"), {"v": version})
    database.close()
    with pytest.raises(StoreError, match=f"its tables have the version '{version}', which no"):
        open_database(where)


def test_a_file_of_the_user_is_not_to_be_deleted(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes")
    with pytest.raises(StoreError, match=r"not a database; choose another file with --store$"):
        open_database(str(notes))
    assert notes.read_text() == "my notes"


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    where = tmp_path / "index.sqlite"
    where.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError, match=r"index.sqlite: file is not a database; delete the file"):
        open_database(str(where))


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreError) as caught:
        open_database("postgresql://ale:secret@127.0.0.1:1/ale")
    assert "127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_no_other_process_can_read_half_an_update(tmp_path: Path, make_run: Any) -> None:
    """A reader sees whole transactions: an episode with all its turns."""
    make_run(tmp_path / "runs" / "r", n=40).close()
    database = open_database(str(tmp_path / "index.sqlite"))
    with database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.turns)) == 0
        Indexer(open_database(str(tmp_path / "index.sqlite"))).update(tmp_path / "runs")
        assert connection.scalar(select(func.count()).select_from(schema.turns)) == 0
    assert len(rows(database, schema.turns, "text")) == 80


def test_runs_that_are_to_be_read_again_stay_until_then(folder: Path, database: Database) -> None:
    indexer = Indexer(database)
    indexer.update(folder)
    before = everything(database)
    with database.writing() as connection:
        connection.execute(schema.episodes.update().values(model="wrong"))
        connection.execute(schema.settings.update().values(value="wrong"))
    indexer.outdate(folder)
    assert len(rows(database, schema.episodes, "model")) == 3
    assert indexer.update(folder).episodes == 3
    assert everything(database) == before
