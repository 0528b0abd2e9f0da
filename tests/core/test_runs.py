"""The public door to stored runs: read, cut again, credit again."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale._store import Redactor, RunDirectory
from ale.errors import InputError
from ale.runs import (
    Registry,
    RunReader,
    build_choice,
    check_config,
    creditings,
    parse_choice,
    recredited,
)
from ale.testing.builders import episode, turn


@pytest.fixture
def run(workplace: Any, finish: Callable[[Any], Any]) -> RunReader:
    """Three tasks, two rollouts each, done by the bench."""
    prepared = workplace.prepared(workplace.config(3, rollouts=2))
    asyncio.run(finish(prepared))
    return RunReader(prepared.store.path)


def test_a_stored_run_gives_its_manifest_tasks_episodes_credits_and_events(run: RunReader) -> None:
    assert run.manifest["config"]["chunker"] == {"type": "ale-bench/interaction"}
    assert [task.id for task in run.tasks] == ["t0", "t1", "t2"]
    ids = {episode.id for episode in run.episodes}
    assert len(ids) == 6
    assert {row.episode_id for row in run.credits()} == ids
    assert [event["event"] for event in run.events()][:1] == ["run_started"]
    assert run.index().steps() == [0]


def test_episodes_are_read_one_at_a_time(run: RunReader) -> None:
    """A damaged line is met only when it is reached."""
    path = run.path / "episodes.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"{}\n" + b"".join(rest))
    read = iter(run.episodes)
    assert next(read).id
    with pytest.raises(InputError, match=r"episodes\.jsonl:2"):
        next(read)


def test_a_choice_is_a_name_with_options_as_in_yaml() -> None:
    choice = parse_choice("ipa:gamma=0.9,deep=true,name=x", option="--scheme")
    assert choice.plain() == {"type": "ipa", "gamma": 0.9, "deep": True, "name": "x"}
    with pytest.raises(InputError, match="--scheme: expected option=value, found 'gamma'"):
        parse_choice("ipa:gamma", option="--scheme")


def test_a_choice_is_built_from_what_is_installed(registry: Registry) -> None:
    name, product = build_choice(parse_choice("even", option="--x"), "credit", registry)
    assert (name, type(product).__name__) == ("even", "Even")
    with pytest.raises(InputError, match="did you mean 'even'"):
        build_choice(parse_choice("evne", option="--x"), "credit", registry)


def test_a_run_is_credited_again_by_several_schemes(run: RunReader, registry: Registry) -> None:
    compared = creditings(run, ["ipa:gamma=0.5", "even"], registry)
    rows = list(recredited(run, compared))
    assert [rollout.episode.id for rollout, _ in rows] == [row.episode_id for row in run.credits()]
    stored = [row.credit.weights for row in run.credits()]
    assert [credits[0].weights for _, credits in rows] == stored
    assert {tuple(c.scheme for c in credits) for _, credits in rows} == {("ipa:gamma=0.5", "even")}


def test_one_group_may_be_credited_alone(run: RunReader, registry: Registry) -> None:
    rows = list(recredited(run, creditings(run, ["even"], registry), step=0, task_id="t1"))
    assert {rollout.episode.task_id for rollout, _ in rows} == {"t1"}
    assert len(rows) == 2


def test_a_run_may_be_cut_by_another_chunker(run: RunReader, registry: Registry) -> None:
    (made,) = creditings(run, ["even"], registry, chunker="ale-bench/interaction")
    assert made.chunker_name == "interaction"
    with pytest.raises(InputError, match=r"--chunker: chunker\.type: no chunker 'whole'"):
        creditings(run, ["even"], registry, chunker="whole")


def test_a_wrong_option_of_a_scheme_is_a_problem(run: RunReader, registry: Registry) -> None:
    with pytest.raises(InputError, match=r"--scheme: credit\.gamma: unknown option"):
        creditings(run, ["even:gamma=1"], registry)


def test_no_more_than_a_group_is_in_memory(tmp_path: Path, registry: Registry) -> None:
    """Ten times the episodes, the same peak: what is allocated while they are credited."""
    import tracemalloc

    def peak(tasks: int) -> int:
        manifest = {"run_id": "r", "n_tasks": tasks, "config": {"chunker": {"type": "interaction"}}}
        store = RunDirectory.create(tmp_path / str(tasks), manifest, Redactor({}))
        for number in range(tasks):
            store.add_episode(episode(1.0, turn("x" * 100_000), task_id=f"task-{number}"))
        store.close()
        run = RunReader(store.path)
        tracemalloc.start()
        for _ in recredited(run, creditings(run, ["even"], registry)):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(100) < 1.5 * peak(10)


def test_a_config_is_checked_with_its_tasks_and_given_back_whole(
    tmp_path: Path, workplace: Any, registry: Registry
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(workplace.config(3, rollouts=2).resolved))
    checked = check_config(path, registry, ["run.steps=2"])
    assert checked.episodes == 12
    assert checked.config["run"]["steps"] == 2
    assert checked.config["chunker"] == {"type": "ale-bench/interaction"}
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(checked.config))
    assert check_config(again, registry) == checked
    with pytest.raises(InputError, match=r"run\.steps"):
        check_config(path, registry, ["run.steps=0"])
