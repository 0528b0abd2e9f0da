"""Waiting in tests: what was found is returned, and an error says what did not happen."""

import asyncio

import pytest

from ale.testing.waiting import until, wait_for


async def test_what_the_condition_returns_once_it_is_true_is_returned() -> None:
    sync, plain, awaited = iter([0, "", 7]), iter([None, 8]), iter([[], [9]])

    async def looks() -> object:
        return next(awaited)

    assert wait_for(lambda: next(sync)) == 7
    assert await until(lambda: next(plain)) == 8
    assert await until(looks) == [9]


async def test_other_tasks_run_while_one_waits() -> None:
    done = asyncio.create_task(asyncio.sleep(0))
    await until(done.done)


async def test_an_error_names_what_did_not_happen() -> None:
    with pytest.raises(AssertionError, match=r"^it did not happen within 0 s$"):
        wait_for(lambda: False, limit_s=0)
    with pytest.raises(AssertionError, match=r"^the end did not happen within 0\.1 s$"):
        await until(lambda: False, lambda: "the end", 0.1)
