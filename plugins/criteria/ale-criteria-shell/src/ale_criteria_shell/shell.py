"""Commands for grading: by absolute path, in an environment that the agent can't change."""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attrs import frozen

from ale.errors import GradingError
from ale.protocols import Sandbox
from ale.types import ExecResult, Task
from ale_criteria_shell.options import CommandOptions

CLEAN: Mapping[str, str] = MappingProxyType(
    {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
    }
)
EXCERPT = 600

# $1 name of the scratch folder, then variables and the command, which is given the folder's path
# last. Only the place for temporary files is taken over, as the backend clears it away.
_CLEAN = """
name=$1 && shift && scratch=${TMPDIR:-/tmp}/$name
exec /usr/bin/env -i "TMPDIR=${TMPDIR:-/tmp}" "HOME=$scratch/home" "$@" "$scratch"
"""
# $1 name of the scratch folder, $2 files to move away or "", $3 folder to run in, $4 mark, $5 the
# command, then variables. What is marked on stderr is written before the command starts, so that
# the command can't make a failure of the command look like one of the grading, nor the other way
# round. There are few processes, because each costs as much as a short command: the last shell runs
# the command itself, without arguments (`set` stands on the command's first line, so that the
# shell's line numbers are the command's).
_WRAPPER = """
scratch=${TMPDIR:-/tmp}/$1 files=$2 from=$3 mark=$4 command=$5
shift 5
mkdir -m 700 -- "$scratch" "$scratch/home" || exit 125
if [ -n "$files" ]; then
  mv -- "$files" "$scratch/files" || exit 125
  set -- "$@" "GRADING_FILES=$scratch/files"
fi
if CDPATH= cd -- "$from" 2>/dev/null; then
  /usr/bin/env -i "TMPDIR=${TMPDIR:-/tmp}" "HOME=$scratch/home" "PWD=$PWD" "$@" \\
    /bin/sh -c 'printf "%s started\\n" "$1" >&2; eval "set --; $2"' /bin/sh "$mark" "$command"
else
  printf '%s no folder\\n' "$mark" >&2
fi
code=$?
cd / && rm -rf -- "$scratch" 2>/dev/null
exit $code
"""
_REMOVE = 'rm -rf -- "${TMPDIR:-/tmp}/$1" 2>/dev/null; echo alive'


@frozen(kw_only=True)
class Outcome:
    """The result of a command, or why it could not start because of the agent's files."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False
    not_started: str | None = None


def clean(
    arguments: Sequence[str], task: Task, env: Mapping[str, str], scratch: str
) -> tuple[str, ...]:
    """`arguments` under an environment of the system's folders, the task's and the criterion's.

    The command is given the path of the scratch folder as one more argument; ``HOME`` lies in it.
    """
    return ("/bin/sh", "-c", _CLEAN, "ale-grading", scratch, *_pairs(task, env), *arguments)


def _pairs(task: Task, env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in {**CLEAN, **task.environment.env, **env}.items()]


def new_scratch() -> str:
    """Unguessable name of a folder: 128 random bits."""
    return f"ale-grading-{secrets.token_hex(16)}"


async def remove(sandbox: Sandbox, scratch: str) -> None:
    """Remove what a command left behind, and check that the sandbox still answers.

    Raises:
        GradingError: it does not answer, so the result says nothing about the agent.
        SandboxError: likewise.
    """
    arguments = ("/bin/sh", "-c", _REMOVE, "ale-grading", scratch)
    result = await sandbox.exec(arguments, env={"PATH": CLEAN["PATH"]}, timeout_s=60)
    if result.stdout.strip() != b"alive":
        raise GradingError(f"the sandbox no longer answers (exit code {result.exit_code})")


async def run(
    sandbox: Sandbox,
    task: Task,
    options: CommandOptions,
) -> Outcome:
    """Run a line of shell for grading: one exec, plus one upload where there are `files`.

    After the time limit the command and all that it has started is killed. If the folder to run in
    is missing, the criterion fails; it is not an error.

    Raises:
        GradingError: the command could not be started, and not because of the agent's files.
        SandboxError: the sandbox is gone.
    """
    scratch, mark, staged = new_scratch(), secrets.token_hex(16), ""
    if options.files is not None:
        # Put where every backend lets us write, then moved out of the command's sight.
        staged = f"{sandbox.workdir.rstrip('/')}/.ale-grading-{secrets.token_hex(16)}"
        await sandbox.upload(options.files, staged)
    arguments = (scratch, staged, options.cwd or ".", mark, options.command)
    result = await sandbox.exec(
        f"set -- {shlex.join((*arguments, *_pairs(task, options.env)))}\n{_WRAPPER}",
        env={"PATH": CLEAN["PATH"]},
        timeout_s=options.timeout_s,
        stdin=None if options.stdin is None else options.stdin.encode(),
    )
    if result.timed_out or result.exit_code > 128:  # the wrapper may have been killed as well
        await remove(sandbox, scratch)
    if result.timed_out:
        return Outcome(exit_code=result.exit_code, timed_out=True)
    return _outcome(result, mark, options.cwd)


def _outcome(result: ExecResult, mark: str, cwd: str | None) -> Outcome:
    started = f"{mark} started\n".encode()
    if result.stderr.startswith(started):
        return Outcome(
            exit_code=result.exit_code,
            stdout=result.stdout,
            stderr=result.stderr.removeprefix(started),
            truncated=result.truncated,
        )
    if result.stderr.startswith(f"{mark} no folder\n".encode()):
        return Outcome(
            exit_code=result.exit_code, not_started=f"the folder {cwd!r} can't be entered"
        )
    raise GradingError(
        f"the sandbox could not start a command for grading (exit code {result.exit_code}): "
        f"{excerpt(result.stderr)}"
    )


def excerpt(data: bytes | str, limit: int = EXCERPT) -> str:
    """The end of some output as text, or ``(nothing)``; errors are at the end."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    text = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    text = text.strip()
    if not text:
        return "(nothing)"
    return text if len(text) <= limit else f"... {text[-limit:]}"
