"""An image's health check as words for a shell: here the engine does not run it."""

import math
import shlex
from collections.abc import Mapping
from typing import Any

_NANO = 1e9
_INTERVAL_S = 30.0
_TIMEOUT_S = 30.0
_RETRIES = 3


def as_words(check: Mapping[str, Any] | None) -> str | None:
    """The check as words for a shell; None where there is none.

    The first word is the whole seconds that an engine would take to call the container unhealthy,
    the second those that each try may take. The others are the command.

    Args:
        check: as the engines' interfaces give it, times in nanoseconds; 0 is a default.
    """
    kind, *words = (check or {}).get("Test") or ["NONE"]
    if check is None or kind not in ("CMD", "CMD-SHELL") or not words:
        return None
    command = words if kind == "CMD" else ["/bin/sh", "-c", *words]
    timeout = _seconds(check, "Timeout", _TIMEOUT_S)
    tries = (check.get("Retries") or _RETRIES) * _seconds(check, "Interval", _INTERVAL_S)
    within = _seconds(check, "StartPeriod", 0.0) + tries + timeout
    return shlex.join([str(math.ceil(within)), str(math.ceil(timeout)), *command])


def _seconds(check: Mapping[str, Any], name: str, usual: float) -> float:
    return (check.get(name) or 0) / _NANO or usual
