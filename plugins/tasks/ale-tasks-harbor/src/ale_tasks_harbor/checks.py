"""Sizes and health checks, which both formats have."""

import re
import shlex
from collections.abc import Mapping

from ale_tasks_harbor.values import Values

_UNITS = {"": 1 / (1 << 20), "b": 1 / (1 << 20), "k": 1 / 1024, "m": 1.0, "g": 1024.0}
NO_SIZE = "expected a size such as 2G or 512M, found {text!r}"
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?\s*", re.IGNORECASE)


def mebibytes(text: str) -> int | None:
    """``512M``, ``2G``, ``1.5gb``, or bytes; 0 only for 0, None where it is no size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    size = float(match[1]) * _UNITS[match[2].lower()]
    return max(1, int(size)) if size else 0


def memory_mb(values: Values, key: str, legacy: str) -> int | None:
    """MiB, by a key in MiB or by an older one with a unit."""
    size = values.whole(key)
    if size is not None:
        return size or None
    text = values.values.get(legacy)
    # As in Harbor, a number there says nothing, and a text needs its unit.
    if not isinstance(text, str):
        return None
    found = mebibytes(text) if text.strip()[-1:].isalpha() else None
    if found is None:
        values.refuse(legacy, NO_SIZE.format(text=text))
    return found or None


_BESIDES_S = 120.0
# As in Harbor the check is for bash; where there is none, it has to do with what there is.
_HEALTHY = """\
first=$(date +%s) failed=0
while :; do
  timeout {timeout:.0f} "$(command -v bash || echo sh)" -c {command} && exit 0
  if [ $(($(date +%s) - first)) -lt {start_period:.0f} ]; then
    sleep {start_interval:g}
    continue
  fi
  failed=$((failed + 1))
  [ $failed -ge {retries:.0f} ] && echo 'the health check failed {retries:.0f} times' >&2 && exit 1
  sleep {interval:g}
done"""


def health_step(values: Values) -> tuple[str, ...]:
    """The setup step that waits until a task's environment is ready; none where it has no check."""
    command = values.text("command")
    if command is None:
        # A blank one passes at once.
        if values.values and not values.has("command"):
            values.refuse("command", "a health check without a command")
        return ()
    return (_HEALTHY.format(command=shlex.quote(command), **_times(values)),)


def health_s(values: Values) -> float:
    """Seconds after which a health check has passed or failed; some for what is done besides."""
    if values.text("command") is None:
        return _BESIDES_S
    of = _times(values)
    tries = of["retries"] * (of["timeout"] + of["interval"])
    return _BESIDES_S + of["start_period"] + of["timeout"] + of["start_interval"] + tries


def _times(values: Values) -> Mapping[str, float]:
    """Seconds of a health check, and how often it may fail."""
    return {
        "timeout": max(1.0, values.seconds("timeout_sec", 30.0) or 30.0),
        "interval": values.amount("interval_sec", 5.0),
        "start_interval": values.amount("start_interval_sec", 5.0),
        "start_period": values.amount("start_period_sec", 0.0),
        "retries": max(1, 3 if (found := values.whole("retries")) is None else found),
    }
