"""Harbor's reward: ``reward.json`` or ``reward.txt``, as finite numbers on any scale."""

import contextlib
import json
import math
from collections.abc import Mapping


class RewardError(Exception):
    """A file of the tests has no reward; the message says why."""


def from_json(data: bytes) -> Mapping[str, float]:
    """Rewards by name.

    Raises:
        RewardError: it is empty, no JSON object, or a value in it is no finite number.
    """
    text = _text(data, "reward.json")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise RewardError(f"reward.json is not JSON: {error}") from None
    except RecursionError:
        raise RewardError("reward.json is nested too deeply") from None
    if not isinstance(found, dict):
        raise RewardError(f"reward.json holds {_shown(text)}, which names no rewards")
    if not found:
        raise RewardError("reward.json names no reward")
    return {name: _checked(value, "reward.json") for name, value in found.items()}


def from_text(data: bytes) -> Mapping[str, float]:
    """One reward.

    Raises:
        RewardError: it is empty, or no finite number.
    """
    text = _text(data, "reward.txt")
    try:
        value = float(text)
    except ValueError:
        raise RewardError(f"reward.txt holds {_shown(text)}, which is not a number") from None
    return {"reward": _checked(value, "reward.txt")}


def of_files(as_json: bytes | None, as_text: bytes | None, where: str) -> Mapping[str, float]:
    """Rewards of the two files; the JSON goes first, as in Harbor. Raises as the others."""
    if as_json is not None:
        return from_json(as_json)
    if as_text is not None:
        return from_text(as_text)
    raise RewardError(f"the tests wrote no reward to {where}")


def single(rewards: Mapping[str, float]) -> float:
    """The one called ``reward``, else the mean of all of them."""
    if "reward" in rewards:
        return rewards["reward"]
    return math.fsum(rewards.values()) / len(rewards)


def below(rewards: Mapping[str, float], least: Mapping[str, float]) -> list[str]:
    """Which rewards are less than a step needs; one that is missing is."""
    return [
        f"{name} {rewards[name]:g} is below {bound:g}" if name in rewards else f"no reward '{name}'"
        for name, bound in least.items()
        if rewards.get(name, -math.inf) < bound
    ]


def _text(data: bytes, name: str) -> str:
    text = data.decode("utf-8", "replace").strip()
    if not text:
        raise RewardError(f"{name} is empty")
    return text


def _checked(value: object, name: str) -> float:
    with contextlib.suppress(OverflowError):  # a whole number of hundreds of digits
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    raise RewardError(f"{name} holds {_shown(repr(value))}, which is not a finite number")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
