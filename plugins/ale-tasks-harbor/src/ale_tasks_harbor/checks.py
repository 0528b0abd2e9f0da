"""What both formats have in common: sizes and health checks."""

import re
import shlex

from ale_tasks_harbor.values import Values

_UNITS = {"": 1 / (1 << 20), "b": 1 / (1 << 20), "k": 1 / 1024, "m": 1.0, "g": 1024.0}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([bkmg]?)(?:i?b)?\s*", re.IGNORECASE)


def mebibytes(text: str) -> int | None:
    """``512M``, ``2G``, ``1.5gb``, or bytes; None where it is no size."""
    match = _SIZE.fullmatch(text)
    return None if match is None else max(1, int(float(match[1]) * _UNITS[match[2].lower()]))


def memory_mb(values: Values, key: str, legacy: str) -> int | None:
    """MiB, by a key in MiB or by an older one with a unit."""
    size = values.whole(key)
    if size is not None:
        return size or None
    text = values.text(legacy)
    if text is None:
        return None
    found = mebibytes(text)
    if found is None:
        values.refuse(legacy, f"expected a size such as 2G or 512M, found {text!r}")
    return found


_HEALTHY = """\
first=$(date +%s) failed=0
while :; do
  timeout {timeout:.0f} sh -c {command} && exit 0
  if [ $(($(date +%s) - first)) -lt {start_period:.0f} ]; then sleep {start_interval}; continue; fi
  failed=$((failed + 1))
  [ $failed -ge {retries} ] && echo 'the health check failed {retries} times' >&2 && exit 1
  sleep {interval}
done"""


def health_step(values: Values) -> tuple[str, ...]:
    """The setup step that waits until a task's environment is ready; none where it has no check."""
    command = values.text("command")
    if command is None:
        if values.values:
            values.refuse("command", "a health check without a command")
        return ()
    return (
        _HEALTHY.format(
            command=shlex.quote(command),
            timeout=max(1.0, values.seconds("timeout_sec", 30.0) or 30.0),
            interval=values.seconds("interval_sec", 5.0),
            start_interval=values.seconds("start_interval_sec", 5.0),
            start_period=_or_zero(values, "start_period_sec"),
            retries=values.whole("retries") or 3,
        ),
    )


def _or_zero(values: Values, key: str) -> float:
    return 0.0 if values.values.get(key) == 0 else values.seconds(key, None) or 0.0
