"""The reward function of a training: loaded by its name, and its rewards checked."""

import functools
import importlib
import importlib.util
import inspect
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ale.errors import AleError, InputError

Reward = Callable[..., Any]


def load_reward(name: str) -> Reward:
    """The function that ``module:function`` or ``file.py:function`` names.

    Raises:
        InputError: there is no such function.
    """
    where, colon, function = name.rpartition(":")
    expected = "module:function or file.py:function"
    if not colon or not where or not function:
        raise InputError.of(f"expected {expected}, found '{name}'", path="reward")
    try:
        module = _of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:  # whatever the module raises
        message = f"{where} can't be imported: {type(error).__name__}: {error}"
        raise InputError.of(message, path="reward", expected=expected) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise InputError.of(
            f"{where} has no function '{function}'", path="reward", expected=expected
        )
    reward: Reward = found
    return reward


def _of_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(name: str, reward: Reward) -> Reward:
    """A reward function whose errors name it, and which gives a number for each completion.

    TRL takes None and NaN for a reward of 0 where there is one function, and learns nothing from
    an infinite one.

    Args:
        name: as in the config, for errors.
    """

    @functools.wraps(reward)
    def called(**given: Any) -> Sequence[float]:
        with _errors(name):
            found = reward(**given)
        return _numbers(name, found, len(given["completions"]))

    @functools.wraps(reward)
    async def awaited(**given: Any) -> Sequence[float]:
        with _errors(name):
            found = await reward(**given)
        return _numbers(name, found, len(given["completions"]))

    return awaited if inspect.iscoroutinefunction(reward) else called


@contextmanager
def _errors(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise AleError(
            f"{last.filename}:{last.lineno}: the reward function {name} failed: "
            f"{type(error).__name__}: {error}"
        ) from error


def _numbers(name: str, found: Any, n: int) -> Sequence[float]:
    try:
        values = [float(each) for each in found]
    except (TypeError, ValueError):
        values = []
    if len(values) != n or not all(map(math.isfinite, values)):
        given = repr(found)
        raise AleError(
            f"the reward function {name} returned {given[:100]}{'...' * (len(given) > 100)}, "
            f"expected a finite number for each of {n} completions"
        )
    return values
