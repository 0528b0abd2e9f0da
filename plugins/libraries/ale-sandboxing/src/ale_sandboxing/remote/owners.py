"""Which process holds a sandbox, as text that a service can store; and names of runs and tasks."""

import hashlib
import re
from collections.abc import Mapping

from attrs import evolve

from ale_sandboxing.shell.owner import Owner

_EPISODE = re.compile(r"(?:evaluation-)?\d+-(?P<task>.+?)(?:@.*)?-\d+")


def owner_text(owner: Owner) -> str:
    """The process, in letters, digits and points."""
    place = f"{_short(owner.machine)}.{_short(owner.boot)}.{owner.namespace}"
    return f"{place}.{owner.pid}.{owner.start}"


def owner_alive(text: str | None, me: Owner) -> bool:
    """Does the process live? Also True where it can't be known from here."""
    if text is None:
        return True
    machine, boot, namespace, pid, start = text.split(".")
    if machine != _short(me.machine):
        return True
    if boot != _short(me.boot):
        return False
    return evolve(me, pid=int(pid), start=int(start), namespace=int(namespace)).alive


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def names_of(tags: Mapping[str, str]) -> dict[str, str]:
    """``job``, the run, and ``problem``, the task, as far as a sandbox's tags tell them."""
    names = {"job": tags["run"]} if "run" in tags else {}
    episode = _EPISODE.fullmatch(tags.get("episode", ""))
    if episode is not None:
        names["problem"] = episode["task"]
    return names
