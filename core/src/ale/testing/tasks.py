"""The contract of a task source."""

import math
import re
from pathlib import Path

import attrs
import msgspec
import pytest

from ale.errors import InputError
from ale.protocols import TaskSource
from ale.types import Task

_SAFE_ID = re.compile(r"[A-Za-z0-9._-]+")


class TaskSourceContract:
    """The contract of every task source. Override `source`, and `broken_source` where it applies::

    class TestMine(TaskSourceContract):
        @pytest.fixture
        def source(self, tmp_path: Path) -> TaskSource:
            ...
    """

    @pytest.fixture
    def source(self) -> TaskSource:
        """A source of at least two tasks, built as users get it."""
        raise NotImplementedError("override the fixture 'source'")

    @pytest.fixture
    def broken_source(self) -> TaskSource:
        """A source that reads text files, pointed at tasks with mistakes on known lines."""
        pytest.skip("this source reads no input written by users")

    def test_loads_several_tasks(self, source: TaskSource) -> None:
        tasks = list(source.load())
        assert len(tasks) >= 2, "give the kit a source of at least two tasks"
        assert all(isinstance(task, Task) for task in tasks)

    def test_loading_again_gives_equal_tasks_in_the_same_order(self, source: TaskSource) -> None:
        assert list(source.load()) == list(source.load())

    def test_two_loads_can_be_iterated_in_parallel(self, source: TaskSource) -> None:
        pairs = list(zip(source.load(), source.load(), strict=True))
        assert len(pairs) == len(list(source.load()))
        assert all(one == other for one, other in pairs)

    def test_the_first_task_can_be_loaded_alone(self, source: TaskSource) -> None:
        all_of_them = list(source.load())
        assert next(iter(source.load()), None) == all_of_them[0]

    def test_ids_are_unique(self, source: TaskSource) -> None:
        ids = [task.id for task in source.load()]
        assert sorted(ids) == sorted(set(ids))

    def test_ids_can_be_names_of_files(self, source: TaskSource) -> None:
        ids = [task.id for task in source.load()]
        assert [i for i in ids if not _SAFE_ID.fullmatch(i) or i in (".", "..")] == []

    def test_every_task_has_a_goal(self, source: TaskSource) -> None:
        assert [task.id for task in source.load() if not task.goal.strip()] == []

    def test_every_task_can_be_graded(self, source: TaskSource) -> None:
        loaded = [step for task in source.load() for step in task.steps or (task,)]
        for task in loaded:
            assert task.criteria, f"{task.id} has no criteria"
            for spec in task.criteria:
                assert spec.type, f"{task.id} has a criterion without a type"
                assert 0 < spec.weight < math.inf, f"{task.id}: weight {spec.weight}"

    def test_limits_are_above_zero(self, source: TaskSource) -> None:
        for task in source.load():
            limits = task.constraints
            for limit in (limits.time_limit_s, limits.max_steps, limits.max_turns):
                assert limit is None or 0 < limit < math.inf, f"{task.id}: limit {limit}"

    def test_host_folders_exist_wherever_the_run_is_started(self, source: TaskSource) -> None:
        for task in source.load():
            for folder in (task.files, task.environment.build):
                if folder is not None:
                    assert Path(folder).is_absolute(), f"{task.id}: {folder} is relative"
                    assert Path(folder).is_dir(), f"{task.id}: there is no folder {folder}"

    def test_tasks_cannot_be_changed(self, source: TaskSource) -> None:
        task = next(iter(source.load()))
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            task.goal = "something else"  # type: ignore[misc]
        for name, value in vars(task).items():
            assert not isinstance(value, list | set), f"{name} can be changed in place"

    def test_a_task_is_the_same_after_it_was_stored(self, source: TaskSource) -> None:
        for task in source.load():
            stored = msgspec.json.encode(task)
            assert msgspec.json.decode(stored, type=Task) == task

    def test_mistakes_are_reported_with_file_and_line(self, broken_source: TaskSource) -> None:
        with pytest.raises(InputError) as caught:
            list(broken_source.load())
        assert caught.value.problems
        for problem in caught.value.problems:
            assert problem.message
            assert problem.file, f"no file is named: {problem}"
            assert problem.line is not None, f"no line is named: {problem}"
            assert problem.line >= 1

    def test_mistakes_are_reported_again_on_the_next_load(self, broken_source: TaskSource) -> None:
        reported = []
        for _ in range(2):
            with pytest.raises(InputError) as caught:
                list(broken_source.load())
            reported.append(caught.value.problems)
        assert reported[0] == reported[1]
