"""Whether a judge that does not start is the agent's doing."""

import contextlib
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from ale.errors import SandboxDamagedError, SandboxError
from ale.judging import EVERYTHING, opened_judge


@pytest.mark.parametrize(("failures", "damaged"), [(2, False), (3, True)])
async def test_the_machine_is_not_taken_for_the_agent(failures: int, damaged: bool) -> None:
    """What fails at first has to fail again after a start without the agent's files."""
    starts: list[bool] = []

    @contextlib.asynccontextmanager
    async def start(without: Collection[str]) -> AsyncIterator[Any]:
        starts.append(EVERYTHING in without)
        if EVERYTHING not in without and starts.count(False) <= failures:
            raise SandboxError("did not answer in time")
        yield "judge"

    raised = pytest.raises(SandboxDamagedError, match="did not answer in time")
    with raised if damaged else contextlib.nullcontext():
        async with opened_judge(start, ()) as judge:
            assert str(judge) == "judge"
    assert starts == [False, True, False, False]


async def test_where_nothing_starts_nobody_is_blamed() -> None:
    @contextlib.asynccontextmanager
    async def start(without: Collection[str]) -> AsyncIterator[Any]:
        raise SandboxError("the engine is gone")
        yield

    with pytest.raises(SandboxError, match="the engine is gone") as caught:
        async with opened_judge(start, ()):
            pass
    assert not isinstance(caught.value, SandboxDamagedError)
