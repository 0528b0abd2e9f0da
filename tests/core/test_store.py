"""The run directory: whole lines, one writer, nothing lost, no secret."""

import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ale._store import Redactor, RunDirectory, RunReader
from ale.errors import InputError, StoreError
from ale.runs import Lines, holder, lock
from ale.testing.builders import episode, task, turn
from ale.types import Chunk, Credit, CreditedEpisode, replace

NO_SECRETS = Redactor({})
MANIFEST = {"run_id": "run", "n_tasks": 0, "config": {"chunker": {"type": "interaction"}}}
HOLD = """\
import pathlib, sys
from ale.runs import lock
lock(pathlib.Path(sys.argv[1]))
print(flush=True)
input()
"""


def create(tmp_path: Path, redactor: Redactor = NO_SECRETS) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", MANIFEST, redactor)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store = create(tmp_path)
    written = [episode(1.0, turn("hello"), rollout=0), episode(None, rollout=1)]
    for each in written:
        store.add_episode(each)
    store.close()
    reader = RunReader(tmp_path / "run")
    assert list(reader.episodes) == written
    assert ("train", 0, "demo", "", 1, None) in reader.index()


@pytest.mark.parametrize("rewards", [(0.3,) * 3, (0.3,) * 12, (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)])
def test_the_mean_reward_is_rounded_once(tmp_path: Path, rewards: tuple[float, ...]) -> None:
    store = create(tmp_path)
    for number, reward in enumerate(rewards):
        store.add_episode(episode(reward, rollout=number))
    found = store.index.statistics(0)
    store.close()
    assert (found.n_episodes, found.mean_reward) == (len(rewards), sorted(rewards)[1])


def test_of_an_episode_on_several_lines_the_last_counts(tmp_path: Path) -> None:
    store = create(tmp_path)
    for reward, rollout in ((0.0, 0), (0.5, 1), (1.0, 0), (0.25, 0)):
        store.add_episode(episode(reward, rollout=rollout))
    store.close()
    reader = RunReader(tmp_path / "run")
    assert [(each.rollout, each.reward) for each in reader.episodes] == [(1, 0.5), (0, 0.25)]
    index = reader.index()
    assert (sorted(index.rewards()), index.repeated) == ([0.25, 0.5], 2)
    assert index.offsets(0) == sorted((at for at, _ in reader.episodes.once()), reverse=True)


def test_broken_episodes_are_missing_until_they_are_there_again_and_their_credits_go(
    tmp_path: Path,
) -> None:
    store = create(tmp_path)
    store.add_episode(episode(None, rollout=0))
    store.add_episode(episode(1.0, rollout=1))
    with store.writing_credits(0):
        pass
    store.retry_broken()
    keys = [("train", 0, "demo", "", rollout, None) for rollout in (0, 1)]
    assert [key in store.index for key in keys] == [False, True]
    assert (store.index.missing(), store.has_credits(0)) == (1, False)
    store.add_episode(episode(0.0, rollout=0))
    assert [key in store.index for key in keys] == [True, True]
    assert store.index.missing() == 0
    store.close()


def test_how_a_run_ended_is_forgotten_when_it_begins_again_and_its_time_is_not(
    tmp_path: Path,
) -> None:
    store = create(tmp_path)
    store.set_outcome({"outcome": "stopped", "seconds": 3.0})
    store.close()
    for _ in range(2):  # the first is killed before it ends
        store = RunDirectory.resume(tmp_path / "run", NO_SECRETS)
        assert store.earlier_s == 3.0
        store.begin()
        store.close()
        assert RunReader(tmp_path / "run").state == "interrupted"


@pytest.mark.parametrize("size", [40, 200_000])
def test_an_incomplete_last_line_is_removed(tmp_path: Path, size: int) -> None:
    store = create(tmp_path)
    store.add_episode(episode(1.0, rollout=0))
    store.close()
    path = tmp_path / "run" / "episodes.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + (b'{"id": "' + b"a" * size)[:size])
    assert len(list(RunReader(tmp_path / "run").episodes)) == 1
    store = RunDirectory.resume(tmp_path / "run", NO_SECRETS)
    assert path.read_bytes() == whole
    store.add_episode(episode(0.0, rollout=1))
    assert len(list(store.reader.episodes)) == 2
    store.close()


def test_two_processes_cannot_write_to_one_run(tmp_path: Path) -> None:
    store = create(tmp_path)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        RunDirectory.resume(tmp_path / "run", NO_SECRETS)
    store.close()
    RunDirectory.resume(tmp_path / "run", NO_SECRETS).close()


def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path) -> None:
    store = create(tmp_path)
    store.add_episode(episode(1.0, rollout=0))
    whole = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, hard))
    try:
        with pytest.raises(StoreError, match=r"episodes\.jsonl can't be written"):
            store.add_episode(episode(1.0, turn("x" * 5000), rollout=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == whole
    store.close()


def test_a_damaged_line_is_named_by_file_line_and_path(tmp_path: Path) -> None:
    store = create(tmp_path)
    store.add_episode(episode(1.0, rollout=0))
    store.close()
    path = tmp_path / "run" / "episodes.jsonl"
    path.write_bytes(
        path.read_bytes() + path.read_bytes().replace(b'"rollout":0', b'"rollout":"x"')
    )
    with pytest.raises(InputError) as caught:
        list(RunReader(tmp_path / "run").episodes)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.path) == (str(path), 2, "rollout")
    assert problem.message == "Expected `int`, got `str`"


def test_secrets_are_masked_in_every_form(tmp_path: Path) -> None:
    secret = 'sk-"quoted\\and\tlong'
    store = create(tmp_path, Redactor({"MY_API_KEY": secret, "OTHER": "unrelated-text"}))
    store.add_episode(episode(1.0, turn(f"the key is {secret}; unrelated-text")))
    store.add_event("message", 0.0, text=secret)
    chunk = Chunk(index=0, kind=secret, spans=())  # a tag may be the agent's own words
    credit = Credit(episode_id="e", scheme="s", rewards=(1,), returns=(1,), weights=(1,))
    with store.writing_credits(0) as write:
        write(
            CreditedEpisode(
                episode_id="e", task_id="t", chunker="c", chunks=(chunk,), credit=credit
            )
        )
    store.set_outcome({"text": secret})
    store.close()
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert tmp_path / "run" / "credits" / "00000.jsonl" in files
    everything = b"".join(path.read_bytes() for path in files)
    assert b"quoted" not in everything
    assert b"the key is ***; unrelated-text" in everything


def test_a_variable_that_a_config_names_is_secret_whatever_its_name() -> None:
    assert Redactor({"PLAIN": "hunter2hunter2"}, ["PLAIN"]).scrub(b"a hunter2hunter2") == b"a ***"


def test_half_a_surrogate_pair_does_not_stop_the_run(tmp_path: Path) -> None:
    store = create(tmp_path)
    store.add_episode(episode(1.0, turn("bad \ud800 text")))
    store.close()
    (read,) = RunReader(tmp_path / "run").episodes
    assert read.trajectory.turns[0].completion.message.content == "bad ? text"


def test_a_folder_that_is_not_a_run_is_reported_with_the_runs_in_it(tmp_path: Path) -> None:
    create(tmp_path).close()
    # As in a validation, whose runs have the names of what was tried.
    shutil.copytree(tmp_path / "run", tmp_path / "tools")
    for name, year in (("run", 2021), ("tools", 2020)):
        file = tmp_path / name / "manifest.json"
        manifest = {**json.loads(file.read_text()), "created": f"{year}-01-01T00:00:00+00:00"}
        file.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="not a run directory") as caught:
        RunReader(tmp_path)
    assert f"the latest is {tmp_path}/run" in str(caught.value)


def test_a_run_that_two_processes_create_belongs_to_the_first_which_is_named(
    tmp_path: Path,
) -> None:
    store = create(tmp_path)
    with pytest.raises(StoreError, match=f"is in use by process {os.getpid()}, which is running"):
        create(tmp_path)
    store.close()
    with pytest.raises(StoreError, match="run holds a run, which another process has created"):
        create(tmp_path)


def test_a_run_of_a_later_version_is_refused(tmp_path: Path) -> None:
    create(tmp_path).close()
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(InputError, match="schema 99; this version of ale reads 1"):
        RunReader(tmp_path / "run")


@pytest.mark.parametrize("schema", [0, 2])
def test_a_line_of_another_version_is_refused(tmp_path: Path, schema: int) -> None:
    store = create(tmp_path)
    store.add_episode(episode(1.0, turn("one"), rollout=0))
    store.add_episode(episode(1.0, turn("two"), rollout=1))
    store.close()
    path = tmp_path / "run" / "episodes.jsonl"
    first, second = path.read_text().splitlines()
    other = second.replace('"schema":1', f'"schema":{schema}', 1)
    path.write_text(f"{first}\n{other}\n")
    message = f"episodes.jsonl:2: schema: schema {schema}; this version of ale reads 1"
    reader = RunReader(tmp_path / "run")
    with pytest.raises(InputError, match=message):
        reader.index()
    with pytest.raises(InputError, match=message):
        list(reader.episodes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "Expected `object`, got `array`"),
        ('{"schema": 1', "truncated"),
        ('{"schema": 1, "run_id": "run", "n_tasks": 0}', "missing required field `config`"),
        (
            '{"schema": 1, "run_id": "run", "n_tasks": 0, "config": {"chunker": {"type": 5}}}',
            "config.chunker.type: Expected `str`, got `int`",
        ),
    ],
)
def test_a_damaged_manifest_is_reported(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=message):
        RunReader(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "tasks.jsonl", "episodes.jsonl"])
def test_a_folder_in_place_of_a_file_is_reported(tmp_path: Path, name: str) -> None:
    create(tmp_path).close()
    file = tmp_path / "run" / name
    file.unlink(missing_ok=True)
    file.mkdir()
    with pytest.raises(InputError, match=rf"{name}: can't be read: Is a directory"):
        [*RunReader(tmp_path / "run").tasks, *RunReader(tmp_path / "run").episodes]
    with pytest.raises((InputError, StoreError), match="Is a directory"):
        RunDirectory.resume(tmp_path / "run", NO_SECRETS).add_task(task())


def test_a_manifest_that_is_a_link_to_itself_is_reported(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").symlink_to("manifest.json")
    with pytest.raises(InputError, match="can't be read: Too many levels of symbolic links"):
        RunReader(tmp_path)


def test_masking_leaves_keys_numbers_and_the_words_of_a_record_alone(tmp_path: Path) -> None:
    environ = {
        "A_TOKEN": "trajectory",
        "B_TOKEN": "59574240",
        "C_TOKEN": "assistant",
        "MONKEY": "innocent text",
    }
    store = create(tmp_path, Redactor(environ))
    made = replace(episode(1.0, turn("a trajectory, 59574240, innocent text")), seed=59574240)
    store.add_episode(made)
    store.close()
    (read,) = RunReader(tmp_path / "run").episodes
    assert read.seed == 59574240
    message = read.trajectory.turns[0].completion.message
    assert (message.role, message.content) == ("assistant", "a ***, ***, innocent text")


def test_the_password_in_a_url_is_a_secret() -> None:
    url = "postgres://user:hunter2hunter2@host/db"
    assert Redactor({"DATABASE_URL": url}).scrub(b"x hunter2hunter2 y") == b"x *** y"


def test_an_invalid_outcome_is_reported(tmp_path: Path) -> None:
    create(tmp_path).close()
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"outcome": "x", "schema": 1'))
    with pytest.raises(InputError, match="outcome: Expected `object \\| null`, got `str`"):
        RunReader(tmp_path / "run")


def test_a_run_is_running_has_ended_or_was_interrupted(tmp_path: Path) -> None:
    store = create(tmp_path)
    assert RunReader(tmp_path / "run").state == "running"
    store.set_outcome({"outcome": "drained", "seconds": 1.0})
    assert RunReader(tmp_path / "run").state == "drained"
    store.close()
    assert RunReader(tmp_path / "run").state == "drained"
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as resumed:
        assert resumed.stdout is not None
        resumed.stdout.readline()
        assert RunReader(tmp_path / "run").state == "running"
        resumed.communicate(b"\n")
    store = create(tmp_path / "other")
    store.close()
    assert RunReader(tmp_path / "other" / "run").state == "interrupted"


def test_a_directory_is_locked_by_one_process_until_it_is_released(tmp_path: Path) -> None:
    first = lock(tmp_path)
    with pytest.raises(StoreError, match=f"is in use by process {os.getpid()}"):
        lock(tmp_path)
    os.close(first)
    os.close(lock(tmp_path))


def test_a_lock_is_taken_though_somebody_looks_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.close(lock(tmp_path))
    looking = (tmp_path / ".lock").open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)  # as `holder` does, which lets go a moment later
    monkeypatch.setattr("ale._store.lock.time.sleep", lambda _: looking.close())
    os.close(lock(tmp_path))
    assert looking.closed


def test_who_holds_a_lock_is_read_without_taking_it(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert not (tmp_path / ".lock").exists()
    first = lock(tmp_path)
    assert holder(tmp_path) == str(os.getpid())
    os.close(first)
    assert holder(tmp_path) is None
    os.close(lock(tmp_path))


def test_lines_can_be_read_from_an_offset_with_the_number_of_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "numbers.jsonl"
    path.write_text("1\n22\n333\n4\nx\n5")
    lines = Lines(path, int).with_offsets(2)
    assert [next(lines) for _ in range(3)] == [(2, 22), (5, 333), (9, 4)]
    with pytest.raises(InputError, match=r"numbers.jsonl:5:"):
        next(lines)
