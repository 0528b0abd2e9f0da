"""The kit for task sources fails sources that break a promise, each by the test made for it."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from ale.errors import InputError, Problem
from ale.testing.tasks import TaskSourceContract
from ale.types import Constraints, CriterionSpec, Task

KIT = TaskSourceContract()


def good(task_id: str, **changes: object) -> Task:
    task = Task(id=task_id, goal="Do it.", criteria=(CriterionSpec(type="t"),))
    return attrs.evolve(task, **changes)  # type: ignore[misc]


class Source:
    """Gives one list of tasks per load, the last one again and again."""

    def __init__(self, *loads: Iterable[Task]) -> None:
        self._loads = list(loads)

    def load(self) -> Iterable[Task]:
        return self._loads.pop(0) if len(self._loads) > 1 else self._loads[0]


class Failing:
    def __init__(self, *problems: Problem) -> None:
        self._problems = problems

    def load(self) -> Iterator[Task]:
        raise InputError(self._problems)


def fails(test: str, source: object) -> None:
    with pytest.raises(AssertionError):
        getattr(KIT, test)(source)


def test_a_sound_source_passes_every_test() -> None:
    source = Source((good("a"), good("b")))
    broken = Failing(Problem(message="wrong", file="t.yaml", line=3))
    for name in dir(KIT):
        if name.startswith("test_mistakes"):
            getattr(KIT, name)(broken)
        elif name.startswith("test_"):
            getattr(KIT, name)(source)


def test_a_source_of_one_task_is_too_little_to_judge() -> None:
    fails("test_loads_several_tasks", Source((good("a"),)))


def test_another_order_on_the_second_load_is_seen() -> None:
    tasks = (good("a"), good("b"))
    fails(
        "test_loading_again_gives_equal_tasks_in_the_same_order", Source(tasks, tuple(tasks[::-1]))
    )


def test_a_source_that_can_be_read_once_is_seen() -> None:
    used_up = Source(iter((good("a"), good("b"))))
    fails("test_loading_again_gives_equal_tasks_in_the_same_order", used_up)
    shared = Source(iter((good("a"), good("b"), good("c"), good("d"))))
    fails("test_two_loads_can_be_iterated_in_parallel", shared)
    fails(
        "test_the_first_task_can_be_loaded_alone", Source(iter((good("a"), good("b"), good("c"))))
    )


def test_equal_ids_are_seen() -> None:
    fails("test_ids_are_unique", Source((good("a"), good("a"))))


@pytest.mark.parametrize("task_id", ["a/b", "..", "", "a b", "ä"])
def test_an_id_that_is_not_a_file_name_is_found(task_id: str) -> None:
    fails("test_ids_can_be_names_of_files", Source((good("a"), good(task_id))))


def test_an_empty_goal_is_seen() -> None:
    fails("test_every_task_has_a_goal", Source((good("a"), good("b", goal=" \n"))))


@pytest.mark.parametrize(
    "criteria",
    [(), (CriterionSpec(type=""),), (CriterionSpec(type="t", weight=0.0),)],
)
def test_a_task_that_cannot_be_judged_is_seen(criteria: tuple[CriterionSpec, ...]) -> None:
    fails("test_every_task_can_be_graded", Source((good("a"), good("b", criteria=criteria))))


def test_a_limit_of_zero_is_seen() -> None:
    task = good("b", constraints=Constraints(max_steps=0))
    fails("test_limits_are_above_zero", Source((good("a"), task)))


@pytest.mark.parametrize("folder", ["relative", "/no/such/folder"])
def test_host_files_that_are_not_found_are_seen(folder: str) -> None:
    task = good("b", files=folder)
    fails("test_host_folders_exist_wherever_the_run_is_started", Source((good("a"), task)))


def test_a_list_in_a_record_is_seen() -> None:
    fails("test_tasks_cannot_be_changed", Source((good("a", tags=["x"]), good("b"))))


def test_what_json_changes_is_seen() -> None:
    task = good("b", metadata={"path": Path("x"), "pair": (1, 2)})
    with pytest.raises((AssertionError, TypeError)):
        KIT.test_a_task_is_the_same_after_it_was_stored(Source((good("a"), task)))
    pair = good("b", metadata={"pair": (1, 2)})
    fails("test_a_task_is_the_same_after_it_was_stored", Source((good("a"), pair)))


@pytest.mark.parametrize(
    "problem",
    [
        Problem(message="wrong", line=1),
        Problem(message="wrong", file="t.yaml"),
        Problem(message="", file="t.yaml", line=1),
        Problem(message="wrong", file="t.yaml", line=0),
    ],
)
def test_a_problem_without_its_place_is_seen(problem: Problem) -> None:
    fails("test_mistakes_are_reported_with_file_and_line", Failing(problem))
    fails("test_mistakes_are_reported_with_file_and_line", Failing())


def test_a_broken_source_that_raises_nothing_is_seen() -> None:
    with pytest.raises(pytest.fail.Exception):
        KIT.test_mistakes_are_reported_with_file_and_line(Source((good("a"), good("b"))))


def test_mistakes_that_are_reported_once_are_seen() -> None:
    class Forgets:
        def __init__(self) -> None:
            self._line = 0

        def load(self) -> Iterator[Task]:
            self._line += 1
            raise InputError([Problem(message="wrong", file="t.yaml", line=self._line)])

    fails("test_mistakes_are_reported_again_on_the_next_load", Forgets())
