"""The commands of `ale runs` as they are typed."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ale.runs import add_note, hold_notes, lock
from ale.types import Note, Score
from ale_look.store import schema

Ale = Callable[..., Result]


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_the_list_has_a_line_for_each_run(
    folder: Path, ale: Ale, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_run(folder / "deeper" / "second", n=0)
    header, *rows = lines(ale("runs", "list"))
    assert header[:3] == ["run", "state", "created"]
    assert ["first", "completed", "2026-11-01", "12:00", "m", "3", "1", "50.0%", "0.62"] in rows
    assert ["second", "running", "2026-11-01", "12:00", "m", "0", "0", "-", "-"] in rows
    store.close()
    assert ["second", "interrupted"] in [row[:2] for row in lines(ale("runs", "list"))]
    monkeypatch.setenv("ALE_HOST_NAME", "another")
    assert ["second", "not", "ended"] in [row[:3] for row in lines(ale("runs", "list"))]


def test_contested_passes_are_counted(folder: Path, ale: Ale, make_run: Any, attempt: Any) -> None:
    assert "contested" not in ale("runs", "list").output
    store = make_run(folder / "unsure", n=0)
    for number, (value, contested) in enumerate([(1.0, 0.0), (0.0, 0.0), (1.0, None)]):
        score = Score(criterion="tests", value=value, passed=value == 1, contested=contested)
        store.add_episode(attempt(3 * number, scores=(score,)))
    store.close()
    header, *rows, meaning = ale("runs", "list").output.splitlines()
    assert header.split()[-3:] == ["contested", "reward", "tags"]
    assert [row.split()[-2] for row in rows if row.startswith("unsure")] == ["2"]
    assert meaning == "contested: passes that used files the agent changed"


@pytest.mark.parametrize("command", ["delete", "archive"])
def test_states_that_go_with_a_run_are_named(folder: Path, ale: Ale, command: str) -> None:
    run = folder / "first"
    kept = run / "kept"
    kept.mkdir()
    (kept / "0-rename-0").write_text("ref\n")
    said = f"{run} keeps 1 state for `ale regrade`; without the run, `ale sandbox prune`"
    if command == "archive":
        assert said not in ale("runs", command, str(run), "--keep").output
    assert said in ale("runs", command, str(run), "--yes").output


def test_runs_are_filtered_by_tag_setting_outcome_and_time(
    folder: Path, ale: Ale, make_run: Any
) -> None:
    make_run(folder / "second", credit={"type": "ale-credit/grpo", "epsilon": 0.2}).close()
    assert lines(ale("runs", "tag", "runs/second", "--add", "best")) == [["second:", "best"]]

    def found(*arguments: str) -> list[str]:
        _, *rows = [*lines(ale("runs", "list", *arguments)), []]
        return sorted(row[0] for row in rows if row)

    assert found("--tag", "best") == ["second"]
    assert found("--where", "credit.type=grpo", "--where", "credit.epsilon=0.2") == ["second"]
    assert found("--outcome", "completed") == ["first"]
    assert found("--outcome", "none") == ["second"]
    assert found("--after", "2026-11-01", "--before", "2026-11-02") == ["first", "second"]
    assert found("--before", "2026-11-01T11:00") == []
    assert found("--sort", "best", "--limit", "1") == ["second"]


@pytest.mark.parametrize(
    ("stored", "written"),
    [(0.0015, "1.5e-3"), (600.0, "600"), (3, "3.0"), (0.2, ".2"), (True, "true")],
)
def test_a_number_is_found_however_it_is_written(
    folder: Path, ale: Ale, make_run: Any, stored: object, written: str
) -> None:
    make_run(folder / "second", credit={"type": "ale-credit/grpo", "value": stored}).close()
    _, *rows = lines(ale("runs", "list", "--where", f"credit.value={written}"))
    assert [row[0] for row in rows] == ["second"]


@pytest.mark.parametrize(("stored", "written"), [([], "[]"), ({}, "{}")])
def test_an_empty_list_or_mapping_is_found(
    folder: Path, ale: Ale, make_run: Any, stored: object, written: str
) -> None:
    make_run(folder / "second", credit={"type": "ale-credit/grpo", "value": stored}).close()
    asked = ale("runs", "list", "--where", f"credit.value={written}")
    assert asked.stderr == ""
    assert [row[0] for row in lines(asked)[1:]] == ["second"]


@pytest.mark.parametrize("command", ["runs list", "runs episodes"])
def test_a_setting_that_no_run_has_is_named(
    folder: Path, ale: Ale, make_run: Any, command: str
) -> None:
    make_run(folder / "second", credit={"type": "ale-credit/grpo"}).close()
    asked = ale(*command.split(), "--where", "credit.typ=ipa")
    assert asked.exit_code == 0
    said = "no run has the setting 'credit.typ': did you mean 'credit.type'?\n"
    assert asked.stderr == said
    assert ale(*command.split(), "--where", "credit.type=absent").stderr == ""


def test_what_a_sort_by_reward_leaves_out_is_said(folder: Path, ale: Ale) -> None:
    assert len(lines(ale("runs", "episodes", "--broken"))) == 2
    for order in ("best", "worst"):
        refused = ale("runs", "episodes", "--broken", "--sort", order)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "no reward to sort by" in refused.stderr
    assert "leave out broken" in " ".join(ale("runs", "episodes", "--help").stdout.split())


@pytest.mark.parametrize(
    ("option", "value", "status", "said"),
    [
        ("--after", "99999999d", 2, "'99999999d' is no time"),
        ("--after", "9" * 20 + "w", 2, "is no time"),
        ("--limit", "9" * 20, 1, "too large"),
    ],
)
def test_a_number_that_is_too_large_is_an_error(
    folder: Path, ale: Ale, option: str, value: str, status: int, said: str
) -> None:
    for command in (("runs", "episodes"), ("runs", "list")):
        refused = ale(*command, option, value)
        assert (refused.exit_code, refused.stdout) == (status, "")
        assert said in refused.stderr


def test_rows_in_json_have_numbers(folder: Path, ale: Ale) -> None:
    row = json.loads(ale("runs", "list", "--json").stdout)
    assert (row["run_id"], row["state"], row["mean_reward"]) == ("first", "completed", 0.625)
    assert row["tags"] == []


@pytest.mark.parametrize("tag", ["", "two words", "a,b"])
def test_a_tag_is_one_word(folder: Path, ale: Ale, tag: str) -> None:
    assert ale("runs", "tag", "runs/first", "--add", tag).exit_code == 2
    assert not (folder / "first" / "tags.json").exists()


def test_removing_a_tag_that_no_run_has_names_the_nearest_one(
    folder: Path, ale: Ale, make_run: Any
) -> None:
    make_run(folder / "second").close()
    ale("runs", "tag", "runs/first", "--add", "baseline", "--add", "paper")
    wrong = ale("runs", "tag", "runs/first", "--remove", "paper", "--remove", "base-line")
    assert wrong.exit_code == 2
    assert "--remove: the run doesn't have the tag 'base-line'" in wrong.output
    assert "did you mean 'baseline'?" in wrong.output
    none = ale("runs", "tag", "runs/first", "runs/second", "--remove", "x")
    assert "none of the runs has the tag 'x'" in none.output
    assert "tags: baseline, paper" in none.output
    some = ale("runs", "tag", "runs/first", "runs/second", "--remove", "paper")
    assert lines(some) == [["first:", "baseline"], ["second:", "no", "tags"]]


def test_tags_are_those_of_all_runs_that_are_named_or_of_none(folder: Path, ale: Ale) -> None:
    assert ale("runs", "tag", "runs/first", "runs/absent", "--add", "x").exit_code == 2
    assert not (folder / "first" / "tags.json").exists()


def test_two_runs_are_compared_by_results_and_settings(
    folder: Path, ale: Ale, make_run: Any
) -> None:
    make_run(folder / "second", n=1, credit={"type": "ale-credit/grpo"}).close()
    rows = lines(ale("runs", "compare", "runs/first", "runs/second"))
    assert ["outcome", "completed", "interrupted"] in rows
    assert ["episodes", "3", "1"] in rows
    assert ["mean", "reward", "0.625", "1.000"] in rows
    assert ["credit.type", "-", "grpo"] in rows
    assert not [row for row in rows if row[:1] == ["llm.type"]]
    assert ale("runs", "compare", "runs/first").exit_code == 2


def test_a_run_is_deleted_after_a_yes(folder: Path, ale: Ale) -> None:
    ale("runs", "list")
    assert ale("runs", "delete", "runs/first", answer="n\n").exit_code == 0
    assert ale("runs", "delete", "runs/first").exit_code == 1  # nobody answers
    assert (folder / "first").exists()
    done = ale("runs", "delete", "runs/first", answer="y\n")
    assert "deleted runs/first" in done.stdout
    assert not (folder / "first").exists()
    assert ale("runs", "list", "--no-update").stdout == "no runs\n"


def test_a_wrong_name_among_runs_leaves_all_of_them(folder: Path, ale: Ale) -> None:
    for command in ("delete", "archive"):
        done = ale("runs", command, "runs/first", "runs/nope", "--yes")
        assert (done.exit_code, "runs/nope" in done.stderr) == (2, True)
        assert (folder / "first").exists()
        assert not (folder / "first.tar.gz").exists()


def test_a_running_run_is_not_deleted_not_even_with_yes(folder: Path, ale: Ale) -> None:
    descriptor = lock(folder / "first")
    done = ale("runs", "delete", "runs/first", "--yes")
    os.close(descriptor)
    assert (done.exit_code, (folder / "first").exists()) == (1, True)
    assert "in use by process" in done.stderr


def test_a_run_on_which_notes_are_written_is_not_deleted(
    folder: Path, ale: Ale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale._store.shared._PATIENCE_S", 0.05)
    with hold_notes(folder / "first"):
        done = ale("runs", "delete", "runs/first", "--yes")
    assert (done.exit_code, (folder / "first").exists()) == (1, True)
    assert "notes.jsonl is locked by another process" in done.stderr


@pytest.mark.parametrize(
    "more", [["--json"], ["--tag", "x"], ["--sort", "best"], ["--limit", "1"], ["--after", "1d"]]
)
def test_what_a_list_of_archives_would_ignore_is_refused(
    folder: Path, ale: Ale, more: list[str]
) -> None:
    refused = ale("runs", "list", "--archived", *more)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--archived lists all archives in FOLDER" in refused.stderr


def test_archives_of_a_folder_that_is_not_there_are_refused(folder: Path, ale: Ale) -> None:
    refused = ale("runs", "list", "--archived", "absent")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "absent: no such folder" in refused.stderr


@pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="archives need Python 3.11.4 or later"
)
def test_a_run_is_archived_and_restored(folder: Path, ale: Ale) -> None:
    ale("runs", "tag", "runs/first", "--add", "best")
    assert ale("runs", "archive", "runs/first", answer="n\n").exit_code == 0
    assert (folder / "first").exists()
    assert "first.tar.gz" in ale("runs", "archive", "runs/first", "--yes").stdout
    assert ale("runs", "list").stdout == "no runs\n"
    assert lines(ale("runs", "list", "--archived"))[1][:2] == ["first.tar.gz", "2026-11-01"]
    assert ale("runs", "restore", "runs/first.tar.gz").exit_code == 0
    assert lines(ale("runs", "list", "--tag", "best"))[1][0] == "first"


def test_the_database_can_be_made_again(folder: Path, ale: Ale) -> None:
    assert ale("runs", "index").stdout.startswith("1 run, 1 with something new; 3 episodes read")
    assert ale("runs", "index").stdout.startswith("1 run, 0 with something new; 0 episodes read")
    rebuilt = ale("runs", "index", "--rebuild").stdout
    assert rebuilt.startswith("1 run, 1 with something new; 3 episodes read")
    (file,) = (folder.parent / "cache").rglob("index.sqlite")
    file.write_bytes(b"damaged " * 600)
    for name in ("index.sqlite-wal", "index.sqlite-shm"):
        file.with_name(name).unlink(missing_ok=True)
    broken = ale("runs", "list")
    assert (broken.exit_code, "delete the file" in broken.stderr) == (1, True)
    file.unlink()
    assert lines(ale("runs", "list"))[1][0] == "first"


def test_a_run_that_can_not_be_read_is_named_and_the_others_are_listed(
    folder: Path, ale: Ale, make_run: Any
) -> None:
    make_run(folder / "second").close()
    (folder / "second" / "manifest.json").write_text('{"schema": 7}')
    done = ale("runs", "list")
    assert lines(done)[1][0] == "first"
    assert "runs/second/manifest.json" in done.stderr


def test_looking_at_runs_writes_nothing_beside_them(
    folder: Path, ale: Ale, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(folder / "second").close()
    before = sorted(folder.rglob("*"))
    assert len(lines(ale("runs", "list"))) == 3
    assert ale("runs", "episodes").exit_code == 0
    assert sorted(folder.rglob("*")) == before
    (folder / "no-folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "no-folder"))
    assert len(lines(ale("runs", "list"))) == 3, "neither can be written"


def test_what_is_no_run_is_skipped_by_name(folder: Path, ale: Ale, make_run: Any) -> None:
    make_run(folder / "second").close()
    (folder / "index.sqlite").write_bytes(b"")
    done = ale("runs", "compare", *sorted(folder.iterdir()))
    assert done.exit_code == 0, done.output
    assert f"skipped {folder}/index.sqlite: not a run" in done.stderr
    assert ale("runs", "compare", folder / "first", folder / "third").exit_code == 2


def test_a_database_that_is_there_is_used(folder: Path, ale: Ale) -> None:
    """As the observer makes it."""
    (folder / "index.sqlite").write_bytes(b"")
    assert len(lines(ale("runs", "list"))) == 2
    assert (folder / "index.sqlite").stat().st_size
    assert not (folder.parent / "cache").exists()


def test_a_single_run_is_left_as_it_is(folder: Path, ale: Ale) -> None:
    before = sorted(each.name for each in (folder / "first").iterdir())
    assert [row[0] for row in lines(ale("runs", "list", "runs/first"))] == ["run", "first"]
    assert len(lines(ale("runs", "episodes", "runs/first"))) == 4
    assert sorted(each.name for each in (folder / "first").iterdir()) == before
    assert [each.name for each in folder.iterdir()] == ["first"]


def test_a_folder_that_is_not_there_is_named(ale: Ale) -> None:
    done = ale("runs", "list")
    assert (done.exit_code, "no such folder" in done.stderr) == (2, True)


def test_the_runs_of_one_database_can_be_in_many_folders(
    folder: Path, ale: Ale, make_run: Any, tmp_path: Path, postgresql: str
) -> None:
    make_run(tmp_path / "runs2" / "other").close()
    for each in ("runs", "runs2"):
        ale("runs", "index", each, "--store", postgresql)
    assert [row[0] for row in lines(ale("runs", "list", "runs2", "--store", postgresql))] == [
        "run",
        "other",
    ]
    folder.rename(tmp_path / "moved")  # no folder `runs`: all that the database has
    found = lines(ale("runs", "episodes", "--no-update", "--store", postgresql, "--graded"))
    assert sorted(row[0] for row in found[1:]) == ["first", "first", "other", "other"]


def test_episodes_are_found_by_all_that_is_known_of_them(folder: Path, ale: Ale) -> None:
    def found(*arguments: object) -> list[str]:
        rows = lines(ale("runs", "episodes", *arguments))
        return sorted(row[1] for row in rows[1:])

    first, second, third = (f"0-rename-{n}" for n in range(3))
    assert found() == [first, second, third]
    assert found("--prompt", "RENAME the") == [first, second, third]
    assert found("--prompt", "count") == []
    assert found("--min-reward", 0.2, "--max-reward", 0.5) == [second]
    assert found("--after", "2026-11-02", "--before", "2026-11-03") == [second]
    assert found("--broken") == [third]
    assert found("--graded") == [first, second]
    assert found("--error", "refused") == [third]
    assert found("--error", "EXIT CODE") == [second]
    assert found("--failed", "exists") == [second]
    assert found("--text", '"no such file"') == [second]
    assert found("--text", "file0") == [first]
    assert found("--text", r"/at file0\.|No (such|nothing) file/") == [first, second]
    assert found("--text", r"such /f[a-z]+e or/") == [second]
    assert found("--text", "sigma") == []  # the system's prompt is not searched
    assert found("--tool", "shell", "--model", "m", "--task", "rename", "--stop", "finished")
    assert found("--split", "evaluation") == []
    assert found("--where", "llm.type=openai", "--step", 0) == [first, second, third]


def test_the_text_of_notes_is_found_too(folder: Path, ale: Ale, make_run: Any) -> None:
    def found(*arguments: object) -> list[str]:
        rows = lines(ale("runs", "episodes", *arguments))
        return sorted(row[1] for row in rows[1:])

    first, second, third = (f"0-rename-{n}" for n in range(3))
    comment = "It gave up, without a second try."
    note: dict[str, Any] = {"at": 9e9, "episode": third, "label": "timid", "comment": comment}
    add_note(folder / "first", Note(id="a", **note))
    add_note(folder / "first", Note(id="b", at=9e9, episode=second, verdict="good", label="bold"))
    assert found("--text", "timid") == [third]
    assert found("--text", '"second try" timid') == [third]
    assert found("--text", "/gave (in|up)/") == [third]
    assert found("--text", "gave bold") == [], "all words are in one note"
    assert found("--text", "bold", "--min-reward", 0.9) == [], "the other filters hold"
    assert found("--text", "timid", "--sort", "random") == [third]
    ale("runs", "episodes", "--text", "timid", "--out", "found.jsonl")
    assert [row["episode"]["id"] for row in _rows(Path("found.jsonl"))] == [third]
    make_run(folder.parent / "others" / "other").close()
    add_note(folder.parent / "others" / "other", Note(id="c", **{**note, "episode": first}))
    assert found("--text", "timid") == [third], "notes on runs of other folders are no hit"
    add_note(folder / "first", Note(id="a", at=9e9, episode=third))
    assert found("--text", "timid") == []


def test_notes_that_can_not_be_read_are_named(folder: Path, ale: Ale) -> None:
    (folder / "first" / "notes.jsonl").write_text("{}\n{}\n")
    done = ale("runs", "episodes", "--text", "file0")
    assert (done.exit_code, len(lines(done))) == (0, 2)
    assert f"{folder / 'first' / 'notes.jsonl'}:1" in done.stderr
    assert ale("runs", "episodes", "--task", "rename").stderr == ""


def test_a_query_says_when_there_is_more(folder: Path, ale: Ale) -> None:
    done = ale("runs", "episodes", "--limit", 2, "--sort", "oldest", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["episode_id"] for row in rows] == ["0-rename-0", "0-rename-1"]
    assert (rows[0]["run_id"], rows[0]["prompt"]) == ("first", "Rename the file a to b.")
    assert rows[0]["details"] == {}
    assert "--limit shows more" in done.stderr


def test_a_time_is_a_date_or_how_long_ago(folder: Path, ale: Ale) -> None:
    assert len(lines(ale("runs", "episodes", "--after", "9999w"))) == 4
    done = ale("runs", "episodes", "--after", "yesterday")
    assert (done.exit_code, "2026-11-23T09:30" in done.stderr) == (2, True)


def test_a_sample_is_the_same_for_the_same_seed(folder: Path, ale: Ale) -> None:
    flags = ("runs", "episodes", "--sort", "random", "--limit", 2, "--seed")
    drawn = [ale(*flags, 4).stdout for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0].splitlines()) == 3
    others = {ale(*flags, seed).stdout for seed in range(8)}
    assert len(others) > 1
    ale(*flags, 4, "--out", "drawn.jsonl")
    assert all(row["episode"]["id"] in drawn[0] for row in _rows(Path("drawn.jsonl")))
    assert "--seed is for --sort random" in ale("runs", "episodes", "--seed", 4).stderr


@pytest.mark.parametrize(
    ("former", "now"), [("sample", "episodes --sort random"), ("export", "episodes --out PATH")]
)
def test_a_command_that_is_a_part_of_another_says_so(ale: Ale, former: str, now: str) -> None:
    done = ale("runs", former, "--limit", 2)
    assert (done.exit_code, f"is now `ale runs {now}`" in done.stderr) == (2, True)


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_exported_episodes_are_those_of_the_run(folder: Path, ale: Ale, tmp_path: Path) -> None:
    done = ale("runs", "episodes", "--graded", "--out", "found.jsonl")
    assert done.stdout == "2 episodes in found.jsonl\n"
    rows = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    stored = (folder / "first" / "episodes.jsonl").read_text().splitlines()
    assert [row["episode"] for row in rows] == [json.loads(line) for line in stored[:2]]
    assert [row["run"] for row in rows] == ["first", "first"]
    ale("runs", "episodes", "--limit", 1, "--out", "one.jsonl")
    assert len((tmp_path / "one.jsonl").read_text().splitlines()) == 1
    assert ale("runs", "episodes", "--out", "found.csv").exit_code == 2


def test_exported_tables_are_read_by_duckdb(folder: Path, ale: Ale, tmp_path: Path) -> None:
    import duckdb

    ale("runs", "episodes", "--graded", "--out", "tables")
    ale("runs", "episodes", "--graded", "--out", "episodes.parquet")
    both = duckdb.sql(
        f"""SELECT r.run_id, e.reward, count(*) FROM '{tmp_path}/tables/episodes.parquet' e
        JOIN '{tmp_path}/tables/turns.parquet' t ON t.episode = e.id
        JOIN '{tmp_path}/tables/runs.parquet' r ON r.id = e.run GROUP BY ALL ORDER BY 2"""
    ).fetchall()
    assert both == [("first", 0.25, 2), ("first", 1.0, 2)]
    written = {path.stem for path in (tmp_path / "tables").iterdir()}
    assert {*schema.metadata.tables} - written == {"files", "run_tasks"}
    [(n,)] = duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/tables/turns.parquet'").fetchall()
    assert n == 4, "turns of other episodes too"
    errors = duckdb.sql(f"SELECT text FROM '{tmp_path}/tables/errors.parquet'").fetchall()
    assert errors == [("shell: exit code 2",)]
    [(n,)] = duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/episodes.parquet'").fetchall()
    assert n == 2


def test_only_a_folder_of_exported_tables_is_replaced(
    folder: Path, ale: Ale, tmp_path: Path
) -> None:
    done = ale("runs", "episodes", "--out", "runs")
    assert (done.exit_code, "runs holds first" in done.stderr) == (2, True)
    assert (folder / "first" / "manifest.json").exists()
    (tmp_path / "file").write_text("precious")
    assert ale("runs", "episodes", "--out", "file").exit_code == 2
    assert (tmp_path / "file").read_text() == "precious"
    assert ale("runs", "episodes", "--out", "tables").exit_code == 0
    assert ale("runs", "episodes", "--limit", 1, "--out", "tables").exit_code == 0
    (tmp_path / "tables" / "notes.txt").write_text("precious")
    done = ale("runs", "episodes", "--out", "tables")
    assert (done.exit_code, "tables holds notes.txt" in done.stderr) == (2, True)
    assert (tmp_path / "tables" / "notes.txt").read_text() == "precious"


def test_an_episode_that_moved_since_is_not_exported_as_another(folder: Path, ale: Ale) -> None:
    ale("runs", "index")
    path = folder / "first" / "episodes.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(kept[1] + kept[0] + kept[2])
    done = ale("runs", "episodes", "--out", "found.jsonl")
    assert (done.exit_code, "ale runs index --rebuild" in done.stderr) == (2, True)
    ale("runs", "index", "--rebuild")
    assert ale("runs", "episodes", "--out", "found.jsonl").exit_code == 0


def test_the_help_of_ale_imports_no_database() -> None:
    code = (
        "import sys\nfrom ale._cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'pyarrow', 'sqlite3', 'ale_rows') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]"), done.stdout[-200:]


def test_the_page_of_the_store_names_every_table_and_column() -> None:
    page = (Path(__file__).parents[5] / "docs" / "reference" / "store.md").read_text()
    tables = re.findall(r"^\| `(\w+)` (\|[^\n]*\n\|---\|---\|\n(?:\|[^\n]*\n)+)", page, re.M)
    parts = dict(tables)
    assert parts.keys() == schema.metadata.tables.keys()
    for name, table in schema.metadata.tables.items():
        unsaid = [column.name for column in table.c if f"`{column.name}`" not in parts[name]]
        assert not unsaid, (name, unsaid)
