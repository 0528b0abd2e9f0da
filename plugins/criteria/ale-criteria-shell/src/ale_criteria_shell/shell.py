"""Runs a line of shell for grading."""

import math
import secrets
import shlex
from contextlib import AbstractAsyncContextManager, nullcontext

from ale.errors import NoVerdictError
from ale.protocols import MakesScratchFolders, Sandbox
from ale.types import ExecResult, Task, replace
from ale_criteria_shell.options import CommandOptions
from ale_grading.signed_tests import CLEAN, by_clock, excerpt, new_scratch, remove, variables

LONGEST_S = 480.0
"""Seconds by the clock for a command, if CPU time allows no more: below ``run.grading_timeout_s``,
so that a command that only waits fails."""
_OUT_OF_TIME = 128 + 24
"""Exit code of a shell whose last command was ended by SIGXCPU."""

# $1 path of an empty folder for HOME, or name of a scratch folder to make and remove, $2 files to
# move away or "", $3 folder to run in, $4 mark, $5 the command, $6 seconds of CPU time for each of
# its processes, then variables. What is marked on
# stderr is written before the command starts, so that the command can't make a failure of the
# command look like one of the grading, nor the other way round. There are few processes, because
# each costs as much as a short command: the last shell runs the command itself, without arguments
# (`set` stands on the command's first line, so that the shell's line numbers are the command's). It
# does not take the place of the first: a test that kills its parent must not reach the sandbox's.
_WRAPPER = """
scratch=$1 home=$1 made= files=$2 from=$3 mark=$4 command=$5 cpu=$6
shift 6
ulimit -S -t "$cpu" 2>/dev/null
case $scratch in
/*) ;;
*)
  scratch=${TMPDIR:-/tmp}/$scratch made=yes
  home=$scratch/home
  mkdir -m 700 -- "$scratch" "$home" || exit 125
esac
if [ -n "$files" ]; then
  mv -- "$files" "$scratch/files" || exit 125
  set -- "$@" "GRADING_FILES=$scratch/files"
fi
if CDPATH= cd -- "$from" 2>/dev/null; then
  /usr/bin/env -i "TMPDIR=${TMPDIR:-/tmp}" "HOME=$home" "PWD=$PWD" "$@" \\
    /bin/sh -c 'printf "%s started\\n" "$1" >&2; eval "set --; $2"' /bin/sh "$mark" "$command"
else
  printf '%s no folder\\n' "$mark" >&2
fi
code=$?
[ -z "$made" ] || { cd / && rm -rf -- "$scratch" 2>/dev/null; }
exit $code
"""


async def run(
    sandbox: Sandbox, task: Task, options: CommandOptions
) -> tuple[ExecResult, str | None]:
    """Run a line of shell for grading: one exec, plus one upload where there are `files`.

    The time limit is one of CPU time for each of its processes, and eight times as long by the
    clock; then the command and all that it has started is killed. If the folder to run in
    is missing, the criterion fails; it is not an error.

    Returns:
        The result of the command, and why it has no exit code, if it has none.

    Raises:
        NoVerdictError: the command could not be started.
        SandboxError: the sandbox is gone.
    """
    scratch, mark, staged = new_scratch(), secrets.token_hex(16), ""
    if options.files is not None:
        # Put where every backend lets us write, then moved out of the command's sight.
        staged = f"{sandbox.workdir.rstrip('/')}/.ale-grading-{secrets.token_hex(16)}"
        await sandbox.upload(options.files, staged)
    wait_s = by_clock(options.timeout_s, LONGEST_S)
    home: AbstractAsyncContextManager[str] = nullcontext(scratch)
    if isinstance(sandbox, MakesScratchFolders) and not staged:
        home = sandbox.scratch_folder(scratch)
    async with home as place:
        cpu_s = str(math.ceil(options.timeout_s))
        arguments = (place, staged, options.cwd or ".", mark, options.command, cpu_s)
        result = await sandbox.exec(
            f"set -- {shlex.join((*arguments, *variables(task, options.env)))}\n{_WRAPPER}",
            env={"PATH": CLEAN["PATH"]},
            timeout_s=wait_s,
            stdin=None if options.stdin is None else options.stdin.encode(),
        )
    if result.timed_out or result.exit_code > 128:  # the wrapper may have been killed as well
        await remove(sandbox, scratch)
    if result.timed_out:
        silent = replace(result, stdout=b"", stderr=b"")
        return silent, f"did not end within {wait_s:g} s"
    return _of_command(result, mark, options.cwd)


def _of_command(result: ExecResult, mark: str, cwd: str | None) -> tuple[ExecResult, str | None]:
    started = f"{mark} started\n".encode()
    if result.stderr.startswith(started) and result.exit_code == _OUT_OF_TIME:
        late = replace(result, stderr=result.stderr.removeprefix(started), timed_out=True)
        return late, "used more CPU time than it may"
    if result.stderr.startswith(started):
        return replace(result, stderr=result.stderr.removeprefix(started)), None
    if result.stderr.startswith(f"{mark} no folder\n".encode()):
        return replace(result, stderr=b""), f"the folder {cwd!r} can't be entered"
    raise NoVerdictError(
        f"the sandbox could not start a command for grading (exit code {result.exit_code}): "
        f"{excerpt(result.stderr)}"
    )
