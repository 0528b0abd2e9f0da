"""What the task source `validated` advises where it refuses a task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.types import Task
from ale_agent_oracle.validate.badge import ValidatedOptions, ValidatedTasks, write_badge


def hint(badge: Path, passed_by: Mapping[str, Sequence[str]]) -> str:
    task = Task(id="a", goal="g")
    write_badge(badge, {"a": False}, [task], "docker", {}, [], passed_by)
    options = ValidatedOptions(tasks=SimpleNamespace(load=lambda: [task]), badge=badge)
    with pytest.raises(InputError) as refused:
        list(ValidatedTasks(options, BuildContext()).load())
    return str(refused.value)


def test_attacks_are_to_be_accepted_only_where_they_are_the_reason(tmp_path: Path) -> None:
    badge = tmp_path / "validated.json"
    assert "accept: [ATTACK, ...]" in hint(badge, {"a": ["tools"]})
    assert "accept: " not in hint(badge, {})
