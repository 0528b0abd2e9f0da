"""The mark of pytest-asyncio, for a whole contract."""

import inspect
from typing import TypeVar

import pytest

T = TypeVar("T")


def async_tests(contract: type[T]) -> type[T]:
    """Mark the coroutine functions of a contract, which may have other tests too.

    A mark on the class would be inherited by the other tests of a subclass, and warned of there.
    """
    for name, test in vars(contract).items():
        if name.startswith("test_") and inspect.iscoroutinefunction(test):
            pytest.mark.asyncio(test)
    return contract
