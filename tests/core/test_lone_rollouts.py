"""Credit that compares the rollouts of a group, in runs whose groups have only one."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from ale._config import structure_config
from ale._registry import Registry
from ale._run.start import check_run
from ale.plugin import Component, hookimpl
from ale.protocols import Start
from ale.strict import from_plain
from ale.testing.fakes import FakeCreditScheme, FakePolicy, FakeTrainer
from ale.types import Task


class Comparing(FakeCreditScheme):
    """Says that it compares the rollouts of a group."""

    compares_rollouts: Literal[True] = True


class Halves:
    """Half of a task's rollouts from its beginning, and half from elsewhere; or demonstrations."""

    demonstration = False

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        if self.demonstration:
            return [Start(task_id=task.id, rollouts=1, demonstration=True) for task in tasks]
        return [
            Start(task_id=task.id, rollouts=rollouts // 2, name=name)
            for task in tasks
            for name in ("", "later")
        ]

    def learn(self, step: int, episodes: object) -> None: ...


class Shown(Halves):
    demonstration = True


class Parts:
    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        policy = FakePolicy(lambda request: None)
        return [Component("fake", None, lambda o, c: policy, summary="A policy.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        return [Component("comparing", None, lambda o, c: Comparing(), summary="Compares.")]

    @hookimpl
    def ale_starts(self) -> Sequence[Component[Any, Any]]:
        return [
            Component("halves", None, lambda o, c: Halves(), summary="Two starts."),
            Component("shown", None, lambda o, c: Shown(), summary="Demonstrations."),
        ]

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("none", None, lambda o, c: FakeTrainer(), summary="Learns nothing.")]


@pytest.mark.parametrize(
    ("rollouts", "parts", "reported"),
    [
        (1, {"credit": "comparing", "trainer": "none"}, True),
        (2, {"credit": "comparing", "trainer": "none"}, False),
        (1, {"credit": "even", "trainer": "none"}, False),
        (1, {"credit": "comparing"}, False),
        (2, {"credit": "comparing", "trainer": "none", "starts": "halves"}, True),
        (4, {"credit": "comparing", "trainer": "none", "starts": "halves"}, False),
        # Of the steps after the demonstrations.
        (1, {"credit": "comparing", "trainer": "none", "starts": "shown"}, True),
        (2, {"credit": "comparing", "trainer": "none", "starts": "shown"}, False),
    ],
)
def test_a_comparison_of_rollouts_that_are_alone_is_reported_before_the_run(
    workplace: Any, registry: Registry, rollouts: int, parts: dict[str, str], reported: bool
) -> None:
    registry.add(Parts(), "ale-parts")
    plain = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        "llm": {"type": "fake"},
        "run": {"directory": str(workplace.directory), "rollouts": rollouts},
        **{name: {"type": kind} for name, kind in parts.items()},
    }
    config = structure_config(from_plain(plain), registry)
    notes = check_run(config, "test", workplace.outside()).notes
    expected = (
        "credit 'comparing' compares the rollouts of a task from the same start, and each of them "
        "is the only one: every credit is 0, so that the trainer has nothing to reinforce; raise "
        f"run.rollouts, now {rollouts}"
    )
    assert [note for note in notes if "rollouts" in note] == [expected] * reported
