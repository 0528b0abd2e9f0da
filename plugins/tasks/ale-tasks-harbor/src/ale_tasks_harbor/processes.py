"""Whether a task needs a process to keep running: a server, a daemon, a worker.

Harbor grades while the agent's processes keep running. Here they are killed first, unless the
task's own files need them. Nothing that an agent does decides this.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from ale_tasks_harbor.folder import Folder

KEPT = "kept_processes"
"""Key of a task's metadata: why the agent's processes are not ended before its tests."""
_TESTS_IN = ("tests", "run-tests.sh")
_SOLUTION_IN = ("solution", "solution.sh", "solution.yaml")
_LARGEST = 1 << 18
"""Bytes of a file that are searched: scripts are short."""
# What follows of one command, on its line or on lines that continue it; and the dash of an option,
# which may be a word of its own in a list.
_MORE = r"(?:\\\n|[^\n;|&])*"
_DASH = r"[\"']?,?\s+[\"']?-"
_HOST = r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[?::1\]?)(?![-.\w])"
"""An address of this machine. By itself it asks for nothing: lines of logs have such addresses."""
_CLIENTS = (
    r"\b(?:curl|wget|ncat|nc|netcat|telnet|ssh|scp|sftp|rsync|ping|ftp|openssl|grpcurl|nmap|httpie"
    r"|ab|wrk|dig|nslookup|psql|mysql|mongosh?|redis-cli)\b"
)
_CALLS = (
    r"(?i:connect\w*|connection|client|server|smtp\w*|ftp\w*|telnet|imap4\w*|pop3\w*|redis|proxy)"
)
_ADDRESSED = (
    rf"://(?:[^\s/@\"']*@)?{_HOST}",
    rf"(?<![\w.:]){_HOST}:[\d${{]",
    rf"{_CLIENTS}(?:{_MORE}[\s\"'@=])?{_HOST}",
    rf"{_CALLS}\(\s*\(?\s*[\"']{_HOST}",
    rf"(?i:\b\w*(?:host|server)\w*)[\"']?\s*(?:\]\s*)?[=:]\s*[\"']?{_HOST}",
    rf"\s-(?:h|H|-host(?:name)?)[\s\"',=]+{_HOST}",
)
"""Where something is to be reached at such an address: in a URL, with a port, as the argument of a
client or of a call that connects, as the value of a host."""
_TESTS = (
    *_ADDRESSED,
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
"""Text in tests that connects to a server, or looks for a process."""
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
"""Text in a solution that leaves a process running."""
_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)


def asked_for(task: Folder) -> str | None:
    """Why a task folder needs processes that outlive the agent; None if it does not.

    Returns:
        A file and the words in it, for people.
    """
    parts = [task]
    if task.has_folder("steps"):
        steps = task.folder("steps")
        parts += [steps.folder(name) for name in steps.names]
    for words, places in ((_TESTS, _TESTS_IN), (_SOLUTION, _SOLUTION_IN)):
        pattern = _pattern(words)
        for folder, name in _files(parts, places):
            data = _text(folder, name)
            # Comments are looked for only where there is a word to be found in them.
            if pattern.search(data) is None:
                continue
            found = pattern.search(_COMMENT.sub(b"", data))
            if found is not None:
                excerpt = " ".join(found[0].decode("utf-8", "replace").split())
                return f"{folder.at(name).removeprefix(task.at(''))} says '{excerpt}'"
    return None


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile("|".join(words).encode(), re.MULTILINE)


def _files(parts: Iterable[Folder], places: Sequence[str]) -> Iterator[tuple[Folder, str]]:
    """Those of the task, and of each of its steps."""
    for part in parts:
        for place in places:
            if part.has_file(place):
                yield part, place
            elif part.has_folder(place):
                yield from part.folder(place).files()


def _text(folder: Folder, name: str) -> bytes:
    """Its beginning; nothing of what is no text, or can't be read."""
    try:
        data = folder.read(name, _LARGEST)
    except OSError:
        return b""
    return b"" if b"\0" in data else data
