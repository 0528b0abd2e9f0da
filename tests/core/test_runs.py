"""The public API of stored runs, and to the parts that cut and credit them again."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale._run.parts import _in_section
from ale.errors import InputError, Problem
from ale.plugin import Benchmark, Component
from ale.runs import (
    Registry,
    RunReader,
    build_choice,
    check_config,
    parse_choice,
    written_config,
)
from ale.strict import from_plain


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


def test_an_option_of_a_choice_can_be_a_list_or_a_mapping() -> None:
    text = "gae:bootstrap=[time_limit, max_turns],more={a: 1, b: [2, 3]},lam=1"
    assert parse_choice(text, option="--scheme").plain() == {
        "type": "gae",
        "bootstrap": ["time_limit", "max_turns"],
        "more": {"a": 1, "b": [2, 3]},
        "lam": 1,
    }


def test_a_choice_is_built_from_what_is_installed(registry: Registry) -> None:
    name, product = build_choice(parse_choice("even", option="--x"), "credit", registry)
    assert (name, type(product).__name__) == ("even", "FakeCreditScheme")
    with pytest.raises(InputError, match="did you mean 'even'"):
        build_choice(parse_choice("evne", option="--x"), "credit", registry)


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


def test_a_config_is_written_without_defaults_and_with_absolute_paths(
    tmp_path: Path, workplace: Any, registry: Registry
) -> None:
    resolved = workplace.config(1).resolved
    wanted = ("tasks", "sandbox", "llm", "agent", "chunker", "credit", "observers")
    plain = {key: resolved[key] for key in wanted if key in resolved}
    tree = from_plain({**plain, "run": {"directory": "out"}}, file=str(tmp_path / "a.yaml"))
    written = written_config(tree, registry, ["run.rollouts=3"])
    assert written["run"] == {"directory": str(tmp_path / "out"), "rollouts": 3}
    assert written["credit"] == plain["credit"]
    assert "trainer" not in written
    with pytest.raises(InputError, match=r"--set: run\.rollouts"):
        written_config(tree, registry, ["run.rollouts=0"])


def test_a_component_declares_benchmarks_and_nothing_else_as_such() -> None:
    declared = Benchmark("logic", criterion="choice")
    made = Component("logic", None, lambda o, c: None, summary="Logic.", benchmarks=(declared,))
    assert made.benchmarks[0].agent == "single-shot"
    with pytest.raises(TypeError, match="benchmarks"):
        Component("logic", None, lambda o, c: None, summary="Logic.", benchmarks=("logic",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name"):
        Benchmark("a/b", criterion="choice")


@pytest.mark.parametrize(
    ("given", "located"),
    [
        ("include", "evaluation.tasks.include"),
        ("tasks.include", "evaluation.tasks.include"),
        ("tasks", "evaluation.tasks"),
        (None, "evaluation.tasks"),
    ],
)
def test_a_problem_with_an_option_of_a_task_source_names_its_section(
    given: str | None, located: str
) -> None:
    problem = Problem(message="no task has an id that matches 'x'", path=given)
    assert _in_section("evaluation.tasks", problem).path == located
    in_a_task = Problem(message="no goal", file="task.yaml", path="goal")
    assert _in_section("evaluation.tasks", in_a_task) == in_a_task
