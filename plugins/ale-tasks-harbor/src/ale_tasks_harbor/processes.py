"""Does a task ask for what runs: a server, a daemon, a worker?

Harbor grades beside whatever the agent left running. Here it is ended first, unless the files of
the task's author say that it is asked for. Nothing that an agent does has a part in that.

Every folder of a run is looked into before it starts, and there are thousands: so no pathlib here.
"""
# ruff: noqa: PTH112, PTH113, PTH118, PTH123, PTH208

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

KEPT = "kept_processes"
"""Of a task's metadata: why the agent's processes are not ended before its tests."""
_TESTS_IN = ("tests", "run-tests.sh")
_SOLUTION_IN = ("solution", "solution.sh", "solution.yaml")
_LARGEST = 1 << 18
"""Bytes of one file that are looked at: scripts are short, and data says nothing."""
# What follows of one command, on its line or on lines that continue it; and the dash of an option,
# which may be a word of its own in a list.
_MORE = r"(?:\\\n|[^\n;|&])*"
_DASH = r"[\"']?,?\s+[\"']?-"
_TESTS = (
    *(r"\blocalhost\b", r"\b127\.0\.0\.1\b", r"\b0\.0\.0\.0\b", r"\[::1\]", r"[\"'\s]::1[\"'\s]"),
    *(r"://\$\(hostname\b", r"://\$\{?HOSTNAME\b", "AF_UNIX", r"\.sock\b"),
    *("/dev/tcp/", r"\bnc\s+-\w*[zU]"),
    *(rf"(?<![-\w])ss{_DASH}\w*[lnpt]", rf"\bnetstat{_DASH}", rf"\blsof\b{_MORE}\s[\"']?-\w*i"),
    *(r"\bpgrep\b", r"\bpidof\b", r"\bpsutil\b", r"\bps\s+-?[aefx]", r"/proc/\$"),
    *(r"\bkill\s+-0\b", r"os\.kill\("),
    *(r"\bservice\s+\S+\s+status\b", r"\bsystemctl\s+(?:is-active|status)\b", r"\bsupervisorctl\b"),
    # Clients of databases; not what installs them or looks whether they are there.
    *(rf"\b(?:psql|mysql|mongosh?)(?![-\w.])(?:{_MORE}\s[\"']?-|\s*<)", r"\bpg_isready\b"),
    r"\bredis-cli[\"']?,?[ \t]+[\"']?[-$\w]",
    r"\b(?:psycopg\d?|asyncpg|pymysql|MySQLdb|mysql\.connector)\.connect\(",
    *(r"\bMongoClient\(", r"\bredis\.(?:Strict)?Redis\(", r"\bredis\.from_url\("),
)
"""What asks a server, or looks for a process."""
_SOLUTION = (
    *(r"\w&[ \t]*$", r"\s&[ \t]*(?:$|[#;)]|\w+=\$!|sleep\b|wait\b|echo\s+\$!)"),
    *(r"\b(?:nohup|setsid|disown)\b", r"\b(?:tmux\s+new|screen\s+-[dS])"),
    *(rf"\bsystemctl\b{_MORE}\s(?:re)?start\b", rf"\bsystemctl\s+enable\b{_MORE}\s--now\b"),
    *(r"\b(?:rc-)?service\s+\S+\s+(?:re)?start\b", r"/etc/init\.d/\S+\s+(?:re)?start\b"),
    *(r"\b(?:nginx|crond?|sshd)\b", r"\bsupervisord(?![-\w.])", r"\s--?daemon(?:ize|ized)?\b"),
    rf"\b(?:pg_ctl(?:cluster)?|apache2?ctl|httpd|pm2|supervisorctl)\s{_MORE}\b(?:re)?start\b",
    rf"\b(?:gunicorn|php-fpm)\s{_MORE}(?<!\S)-D(?![-\w])",
    *(rf"\bmongod\s{_MORE}--fork\b", rf"\bmemcached\s{_MORE}(?<!\S)-d(?![-\w])"),
    rf"\bdocker[ -]compose\s{_MORE}\bup\s{_MORE}(?<!\S)(?:-d|--detach)(?![-\w])",
)
"""What leaves something running."""
_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)


def asked_for(folder: Path) -> str | None:
    """What in a task folder asks for processes that outlive the agent; None where nothing does.

    Returns:
        A file and the words in it, for people.
    """
    for words, places in ((_TESTS, _TESTS_IN), (_SOLUTION, _SOLUTION_IN)):
        pattern = _pattern(words)
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


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile("|".join(words).encode(), re.MULTILINE)


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
