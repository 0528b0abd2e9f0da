"""A signed record of files that could change a verdict, written before the agent starts.

It is written in the sandbox by a setup step and signed with a key that is never there again, so
the agent can remove it but not change it. What is recorded: the environment; which file each
program that tests are run with is; the folders that Python looks into, and what there runs at the
start of every Python. The same script looks again afterwards.
"""

import hashlib
import hmac
import re
import shlex
from collections.abc import Mapping, Sequence

from attrs import frozen

from ale_tasks_harbor.paths import DEFAULT_PATHS, SandboxPaths

LARGEST = 4 << 20

TOOLS = (
    *("sh", "bash", "env", "cat", "cp", "mv", "rm", "mkdir", "ls", "chmod", "tee", "head", "tail"),
    *("find", "xargs", "sort", "diff", "cmp", "cut", "tr", "wc", "basename", "dirname", "readlink"),
    *("realpath", "stat", "touch", "date", "sleep", "timeout", "id", "grep", "egrep", "fgrep"),
    *("sed", "awk", "apt-get", "apt", "dpkg", "apk", "curl", "wget", "tar", "gzip", "sha256sum"),
    *("pip", "pip3", "python", "python3", "pytest", "py.test", "uv", "uvx", "printf", "echo"),
    *("test", "[", "true", "false", "expr", "seq", "uname", "which"),
)
"""Programs that tests are run with: a new one of the same name must not come before them, whatever
the task is about."""
MODULES = ("pytest", "_pytest", "pluggy", "iniconfig")
ROOT_FILES = (
    *("/conftest.py", "/pytest.ini", "/.pytest.ini", "/pyproject.toml", "/tox.ini", "/setup.cfg"),
    *("/setup.py", "/etc/ld.so.preload"),
)
"""Read by pytest for tests in /tests, by every program that starts."""

# Prints records that end in NUL: F folder of programs, N name in it, M module path, S identity
# path. Its arguments are the folders that Python looks into, one of which may be an archive. Only
# what is built into the shell is used, and stat. A folder of programs is read once, and its files
# are not looked at: what else is in it does no harm.
LOOK = f"""
ident() {{ command -p stat -L -c '%i:%s:%Z' -- "$1" 2>/dev/null || echo none; }}
runs() {{ if [ -e "$1" ]; then printf 'S %s %s\\0' "$(ident "$1")" "$1"; fi; }}
has() {{
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in $2) return 0 ;; esac
  done <"$1"
  return 1
}}
programs() (
  printf 'F %s\\0' "$1"
  cd -- "$1" && set -- * && printf 'N %s\\0' "$@"
)
look() {{
  ifs=$IFS IFS=:
  for folder in $PATH; do
    IFS=$ifs
    if [ -d "$folder" ]; then programs "$folder"; fi
  done
  IFS=$ifs
  for folder in "$@"; do
    if [ -f "$folder" ]; then runs "$folder"; fi
    for module in {" ".join(MODULES)}; do
      for file in "$folder/$module" "$folder/$module.py"; do
        if [ -e "$file" ]; then printf 'M %s %s\\0' "$module" "$file"; fi
      done
    done
    for file in "$folder"/sitecustomize* "$folder"/usercustomize*; do runs "$file"; done
    for file in "$folder"/*.pth; do
      if [ -f "$file" ] && has "$file" 'import[ \t]*'; then runs "$file"; fi
    done
    for file in "$folder"/*-info/entry_points.txt; do
      if [ -f "$file" ] && has "$file" '*pytest11*'; then runs "$file"; fi
    done
  done
  for file in {" ".join(ROOT_FILES)}; do runs "$file"; done
}}
"""

_FOLDERS = (
    "import sys, site; "
    "[print(p) for p in dict.fromkeys([*sys.path, site.getusersitepackages()]) "
    "if p.startswith('/')]"
)

# The variables before it: key, logs, tests, and places, which are words.
_WRITE = f"""{LOOK}
mkdir -p "$logs/agent" "$logs/verifier" "$logs/artifacts" 2>/dev/null
chmod 777 "$logs/agent" "$logs/verifier" "$logs/artifacts" 2>/dev/null
set --
for python in python3 python; do
  if command -v $python >/dev/null; then
    while read -r folder; do set -- "$@" "$folder"; done <<FOLDERS
$($python -I -c "{_FOLDERS}" 2>/dev/null)
FOLDERS
    break
  fi
done
record() {{
  while read -r name uid rest; do
    case $name in Uid:) printf 'U %s\\0' "$uid" ;; esac
  done </proc/self/status
  if [ -e "$tests" ]; then printf 'D tests\\0'; fi
  for folder in "$@"; do if [ -n "$folder" ]; then printf 'P %s\\0' "$folder"; fi; done
  look "$@"
  printf 'E\\0'
  command -p cat /proc/self/environ
}}
for place in $places; do
  mkdir -p "${{place%/*}}" 2>/dev/null
  if record "$@" 2>/dev/null >"$place"; then break; fi
done
sum=$({{ printf %s "$key"; command -p cat "$place"; printf %s "$key"; }} | command -p sha256sum)
printf %s "${{sum%% *}}" >>"$place"
[ ${{#sum}} -gt 64 ] || {{ echo 'the image has no sha256sum' >&2; exit 1; }}
"""


def setup_step(key: str, places: SandboxPaths = DEFAULT_PATHS) -> str:
    """The shell command that writes the record."""
    words = {
        "key": key,
        "logs": places.logs,
        "tests": places.tests,
        "places": " ".join(places.records),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in words.items()]
    return "\n".join([*lines, _WRITE])


@frozen(kw_only=True)
class Look:
    """Findings of the script at one time."""

    tools: Mapping[str, str]
    """Program to the file that a shell would run."""
    modules: Sequence[tuple[str, str]]
    """Name and path, in the order in which Python looks."""
    starts: Mapping[str, str]
    """Files that run by themselves, to what identifies their content."""


@frozen(kw_only=True)
class Record:
    """State of the sandbox before the agent."""

    look: Look
    uid: int
    has_tests: bool
    """The image itself has a folder for tests."""
    folders: Sequence[str]
    """That Python looks into."""
    environment: Mapping[str, str]


_SHELLS_OWN = ("PWD", "OLDPWD", "SHLVL", "_")


def verified(data: bytes, key: str) -> Record | None:
    """The record, or None where it is not what was written."""
    table, signature = data[:-64], data[-64:]
    expected = hashlib.sha256(key.encode() + table + key.encode()).hexdigest().encode()
    if not hmac.compare_digest(signature, expected):
        return None
    head, _, environment = table.partition(b"\0E\0")
    entries = [part.decode("utf-8", "surrogateescape") for part in head.split(b"\0")]
    uids = [int(entry[2:]) for entry in entries if entry.startswith("U ")]
    return Record(
        look=look_of(entries),
        uid=uids[0] if uids else 0,
        has_tests="D tests" in entries,
        folders=[entry[2:] for entry in entries if entry.startswith("P ")],
        environment=variables(environment),
    )


def variables(environ: bytes) -> dict[str, str]:
    """From what the kernel shows of a process, without what its shell has set."""
    pairs = [part.decode("utf-8", "surrogateescape") for part in environ.split(b"\0")]
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {name: value for name, value in found.items() if name not in _SHELLS_OWN}


def look_of(entries: Sequence[str]) -> Look:
    """From what the script printed."""
    words = [entry.split(" ", 2) for entry in entries if entry[:2] in ("M ", "S ")]
    return Look(
        tools=_programs(entries),
        modules=[(name, path) for kind, name, path in words if kind == "M"],
        starts={path: identity for kind, identity, path in words if kind == "S"},
    )


def _programs(entries: Sequence[str]) -> dict[str, str]:
    """The first of each name, in the order in which a shell looks."""
    found: dict[str, str] = {}
    folder = ""
    for entry in entries:
        if entry.startswith("F "):
            folder = entry[2:]
        elif entry.startswith("N "):
            found.setdefault(entry[2:], f"{folder}/{entry[2:]}")
    return found


@frozen(kw_only=True)
class Changes:
    """Changes of the agent that would decide a verdict."""

    shadowed: Mapping[str, str]
    """Programs that others now come before, with the file that they were."""
    planted: Sequence[str]
    """Files and folders that must be out of the way."""


def changes(before: Look, now: Look, instruction: str = "") -> Changes:
    """Compare.

    A program that the instruction names may have been what was asked for, as a newer one is, unless
    it is of those that tests are run with. A module that has come before one of the image is
    planted, as is whatever has come to run by itself. A program or module that the image did not
    have is no change of what it had.
    """
    first: dict[str, str] = {}
    for name, path in before.modules:
        first.setdefault(name, path)
    planted = [path for path, identity in now.starts.items() if before.starts.get(path) != identity]
    for name, path in now.modules:
        if name in first and path == first[name]:
            del first[name]
        elif name in first:
            planted.append(path)
    return Changes(
        shadowed={
            tool: path
            for tool, path in before.tools.items()
            if now.tools.get(tool, path) != path
            and (tool in TOOLS or not _is_named(tool, instruction))
        },
        planted=planted,
    )


def _is_named(program: str, instruction: str) -> bool:
    """As a word, with its version or without."""
    names = {program, program.rstrip("0123456789.-")} - {""}
    either = "|".join(map(re.escape, names))
    return re.search(rf"(?<!\w)(?:{either})(?!\w)", instruction, re.IGNORECASE) is not None
