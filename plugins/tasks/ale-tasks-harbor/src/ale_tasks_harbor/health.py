"""The health check of an image, or of the agent's service in a compose file.

Harbor starts containers with ``docker compose up --wait``, which waits until the check passes, or
fails. Sandboxes with images pass the image's check in a variable.
"""

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

OF_THE_IMAGE = 'eval "set -- ${ALE_IMAGE_HEALTHCHECK-}"'
"""Sets the arguments: seconds until it must pass, seconds for each try, the command."""
NONE = "set --"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_AGAIN_S = 60
# Every second, more often than the engine would: the wait ends as soon as the check passes.
_WAIT = """\
(
{words}
[ $# -gt 0 ] || exit 0
within=$1 each=$2 first=$(date +%s)
shift 2
until timeout "$each" "$@" >/dev/null 2>&1; do
  if [ $(($(date +%s) - first)) -ge {within} ]; then
    echo "the container was not healthy within $within s: $*" >&2
    exit 1
  fi
  sleep 1
done
)"""


def of_service(check: Any) -> str:
    """Shell script that sets the arguments to the check of a compose file's service.

    Without a command it is the image's own check.

    Raises:
        ValueError: a duration is invalid.
    """
    settings = check if isinstance(check, Mapping) else {}
    test = settings.get("test")
    if settings.get("disable"):
        return NONE
    if not test:
        return OF_THE_IMAGE
    kind, *words = test if isinstance(test, list) else ["CMD-SHELL", str(test)]
    if kind not in ("CMD", "CMD-SHELL") or not words:
        return NONE
    command = map(str, words if kind == "CMD" else ["/bin/sh", "-c", *words])
    each = _seconds(settings.get("timeout", "30s"))
    tries = int(settings.get("retries", 3)) * _seconds(settings.get("interval", "30s"))
    within = _seconds(settings.get("start_period", "0s")) + tries + each
    return f"set -- {shlex.join([str(math.ceil(within)), str(math.ceil(each)), *command])}"


def _seconds(written: Any) -> float:
    found = _DURATION.findall(str(written))
    if not found:
        raise ValueError(f"expected a time such as 30s or 1m30s, found {written!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in found)


def step(words: str) -> str:
    """The setup step that waits until the check passes, if there is one."""
    return _WAIT.format(words=words, within='"$within"')


def once_more(words: str) -> str:
    """Script that waits again after a restart. It never fails: the agent may have broken the check,
    and the tests decide."""
    return f"{_WAIT.format(words=words, within=_AGAIN_S)} || :"
