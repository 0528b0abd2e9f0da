"""Tasks of the evaluation that are trained on too are named before the run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ale._cli.main import cli
from ale._config import structure_config
from ale._registry import Registry
from ale._run.start import check_run
from ale.plugin import Component, hookimpl
from ale.strict import from_plain
from ale.testing.fakes import FakePolicy, FakeTrainer
from ale.types import CriterionSpec, Message, Task, replace

DONE = CriterionSpec(type="done")


class Parts:
    @hookimpl
    def ale_llms(self) -> list[Component[Any, Any]]:
        policy = FakePolicy(lambda request: Message(role="assistant"))
        return [Component("fake", None, lambda o, c: policy, summary="A policy.")]

    @hookimpl
    def ale_trainers(self) -> list[Component[Any, Any]]:
        return [Component("none", None, lambda o, c: FakeTrainer(), summary="Learns nothing.")]


def notes(
    bench: Any,
    registry: Registry,
    workplace: Any,
    trained: list[Task],
    held_out: list[Task],
    **more: Any,
) -> list[str]:
    """What is said of two sets of tasks before the run."""

    def tasks(n: int) -> Iterable[Task]:
        return trained if n == 1 else held_out

    bench.tasks = tasks
    registry.add(Parts(), "ale-parts")
    plain = {
        "tasks": {"type": "list", "n": 1},
        "evaluation": {"tasks": {"type": "list", "n": 2}},
        "agent": {"type": "bench"},
        "llm": {"type": "fake"},
        "credit": {"type": "even"},
        "trainer": {"type": "none"},
        "run": {"directory": str(workplace.directory)},
        **more,
    }
    config = structure_config(from_plain(plain), registry)
    return [
        note
        for note in check_run(config, "test", workplace.outside()).notes
        if "trained on" in note
    ]


A, B, C = (Task(id=name, goal=f"Do {name}.", criteria=(DONE,)) for name in "abc")


def test_they_are_counted_whatever_their_names(
    bench: Any, registry: Registry, workplace: Any
) -> None:
    renamed = replace(A, id="z", tags=("new",), description="Another.")
    assert notes(bench, registry, workplace, [A, B], [renamed, C]) == [
        "evaluation.tasks: 1 of 2 tasks trained on too, such as z: success there does not show "
        "what holds for new tasks"
    ]


@pytest.mark.parametrize(
    "other",
    [
        C,
        replace(A, goal="Do it."),
        replace(A, setup_steps=("true",)),
        replace(A, criteria=(DONE, DONE)),
    ],
)
def test_others_are_not(bench: Any, registry: Registry, workplace: Any, other: Task) -> None:
    other = replace(other, id="z")
    assert notes(bench, registry, workplace, [A, B], [other]) == []


def test_a_run_that_trains_nothing_says_nothing(
    bench: Any, registry: Registry, workplace: Any
) -> None:
    without = {"trainer": None}
    assert notes(bench, registry, workplace, [A], [A], **without) == []


@pytest.mark.parametrize(
    ("goal", "said"), [("t", "on tasks it trains on"), ("another", "on held-out tasks")]
)
def test_the_summary_says_what_the_evaluation_is_on(
    bench: Any,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    goal: str,
    said: str,
) -> None:
    bench.tasks = lambda n: [
        Task(id=str(n), goal="t" if n == 1 else goal, criteria=(DONE,)),
    ]
    registry.add(Parts(), "ale-parts")
    (tmp_path / "c.yaml").write_text(
        "tasks: {type: list, n: 1}\nevaluation: {tasks: {type: list, n: 2}}\n"
        "agent: {type: bench}\nllm: {type: fake}\ncredit: {type: even}\ntrainer: {type: none}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(cli), "registry", registry)
    done = CliRunner().invoke(cli, ["run", "c.yaml"])
    lines = [line for line in done.output.splitlines() if "after step" in line]
    assert lines, done.output
    assert all(said in line for line in lines)
