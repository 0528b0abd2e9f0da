"""Does a task ask for what runs: a server, a daemon, a worker?

Harbor grades beside whatever the agent left running. Here it is ended first, unless the files of
the task's author say that it is asked for. Nothing that an agent does has a part in that.

Every folder of a run is looked into before it starts, and there are thousands: so no pathlib here.
"""
# ruff: noqa: PTH112, PTH113, PTH118, PTH123, PTH208

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

KEPT = "kept_processes"
"""Of a task's metadata: why the agent's processes are not ended before its tests."""
_TESTS_IN = ("tests", "run-tests.sh")
_SOLUTION_IN = ("solution", "solution.sh", "solution.yaml")
_LARGEST = 1 << 18
"""Bytes of one file that are looked at: scripts are short, and data says nothing."""
_TESTS = re.compile(
    rb"\blocalhost\b|\b127\.0\.0\.1\b|\b0\.0\.0\.0\b|\[::1\]|/dev/tcp/|\bnc\s+-\w*[zU]|AF_UNIX"
    rb"|\.sock\b|\bpgrep\b|\bpidof\b|\bpsutil\b|\bkill\s+-0\b|os\.kill\(|/proc/\$|\bps\s+-?[aefx]"
)
"""What asks a server, or looks for a process."""
_SOLUTION = re.compile(
    rb"\w&[ \t]*$|\s&[ \t]*(?:$|[#;)]|\w+=\$!|sleep\b|wait\b|echo\s+\$!)"
    rb"|\b(?:nohup|setsid|disown|systemctl\s+(?:re)?start)\b"
    rb"|\bservice\s+\S+\s+(?:re)?start\b|\b(?:tmux\s+new|screen\s+-[dS])|\b(?:nginx|crond?|sshd)\b"
    rb"|/etc/init\.d/\S+\s+(?:re)?start\b|\s--?daemon(?:ize|ized)?\b",
    re.MULTILINE,
)
"""What leaves something running."""
_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)


def asked_for(folder: Path) -> str | None:
    """What in a task folder asks for processes that outlive the agent; None where nothing does.

    Returns:
        A file and the words in it, for people.
    """
    for pattern, places in ((_TESTS, _TESTS_IN), (_SOLUTION, _SOLUTION_IN)):
        for file in _files(os.fspath(folder), places):
            data = _text(file)
            # Comments are looked for only where there is a word to be found in them.
            if pattern.search(data) is None:
                continue
            found = pattern.search(_COMMENT.sub(b"", data))
            if found is not None:
                said = " ".join(found[0].decode("utf-8", "replace").split())
                return f"{os.path.relpath(file, folder)} says '{said}'"
    return None


def _files(folder: str, places: Sequence[str]) -> Iterator[str]:
    """Those of the task, and of each of its steps."""
    names = os.listdir(folder)
    steps = os.path.join(folder, "steps") if "steps" in names else None
    for place in places:
        if place in names:
            yield from _below(os.path.join(folder, place))
    if steps is not None and os.path.isdir(steps):
        for name in sorted(os.listdir(steps)):
            for place in places:
                yield from _below(os.path.join(steps, name, place))


def _below(place: str) -> Iterator[str]:
    """A file, or the files of a folder."""
    if os.path.isfile(place):
        yield place
    for at, _, names in os.walk(place):
        yield from (os.path.join(at, name) for name in sorted(names))


def _text(file: str) -> bytes:
    """Its beginning; nothing of what is no text, or can't be read."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(_LARGEST)
    except OSError:
        return b""
    return b"" if b"\0" in data else data
