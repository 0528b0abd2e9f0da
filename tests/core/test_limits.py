"""A run that this process's limits can't hold is refused before it starts."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from ale._run import episode
from ale._run.start import check_run, start_checked
from ale.errors import InputError
from ale.types import Score

from .conftest import finish

_SCRIPT = """
import resource, sys
from types import SimpleNamespace
from ale._run.preflight import limit_problems

soft, hard, concurrency = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for each in limit_problems(concurrency, SimpleNamespace(descriptors=11)):
    print(each)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limited(soft: int, hard: int, concurrency: int) -> list[str]:
    """The problems in a process with these limits, and the limits that it has afterwards."""
    numbers = map(str, (soft, hard, concurrency))
    command = [sys.executable, "-c", _SCRIPT, *numbers]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("concurrency", "soft"),
    [(4, 300), (50, 900)],  # 4 * 14 + 200, and 50 * 14 + 200
)
def test_the_soft_limit_is_raised_to_what_is_needed(concurrency: int, soft: int) -> None:
    assert limited(300, 1000, concurrency) == [f"{soft} 1000"]


def test_what_the_hard_limit_does_not_hold_is_refused_with_the_largest_number() -> None:
    first, expected, hint, limits = limited(300, 1000, 100)
    assert first == (
        "run.concurrency: 100 episodes at once may need 1600 open files (14 each), and this "
        "process may have 1000"
    )
    assert expected.split() == ["expected", "at", "most", "57"]
    assert "ulimit -n 1600" in hint
    assert limits == "300 1000"
    assert limited(300, 1000, 57) == ["998 1000"]


async def test_a_run_is_refused_before_it_has_a_directory(workplace: Any) -> None:
    config, outside = workplace.config(concurrency=10**12), workplace.outside()
    with pytest.raises(InputError, match="episodes at once may need"):
        await start_checked(check_run(config, "test", outside), outside)
    assert not (workplace.directory / "test").exists()


async def test_episodes_that_end_together_are_graded_a_few_at_a_time(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode, "MOST_GRADED", 2)
    now, most = 0, 0

    async def grade(*_: object) -> Score:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        return Score(criterion="done", passed=True, value=1.0)

    prepared = workplace.prepared(workplace.config(n=7, concurrency=7))
    monkeypatch.setattr(type(prepared.tasks["train"][0].criteria[0][1]), "grade", grade)
    finished = await finish(prepared)
    assert (most, finished.n_succeeded) == (2, 7)
