"""The supervisor, in POSIX shell: all that runs in a container besides its commands.

Process 1 starts a few *worker shells* and waits: it reaps orphaned processes, and starts new worker
shells when the old ones were killed. As process 1 it can't be killed or stopped from inside. A
worker shell reads script from one pipe and answers on another, its descriptor 9. It runs one
command at a time, in the foreground: background jobs of a shell ignore SIGINT, and so would all
their children. The worker shells form a pipeline only to start in parallel without being
background jobs.

Process 1 and the worker shells run a copy of the image's own shell that nobody inside may read.
The kernel does not let other processes of the same user trace such a process or read its memory
and descriptors.

Each command carries a mark that all its descendants inherit, whatever they do to their group,
session, parent or environment: RLIMIT_RSS, which Linux has ignored since 2.4.30, and which nobody
without a capability can raise again. ``sweep`` finds it in ``/proc``, with nothing but what is
built into the shell, so that it works where no process is left to be had.
"""

from collections.abc import Mapping, Sequence

from ale_sandbox_container.pipes import INSIDE
from ale_sandbox_shell.text import as_bytes, quoted

KEY = "key"
KEY_VARIABLE = "ALE_KEY"
FIRST_WORKERS = 3
"""A reserve, one for a session, one for a command at the same time."""

_MARKS_FROM = 1 << 40
"""KiB; far above any real limit."""


def workers(shell: str, base: str, count: int) -> str:
    """Shell script that runs `count` worker shells until all have ended.

    Args:
        base: where their pipes are, as a word of script.
    """
    return " | ".join(
        f'{shell} <"{base}.{number}c" 9>"{base}.{number}r" >/dev/null 2>&1'
        for number in range(count)
    )


def first(shell: str) -> str:
    """The script of process 1. The pipes' names come from a file that is removed before any command
    runs."""
    return f"""\
read -r key <{INSIDE}/{KEY} || exit 1
generation=0
while [ -p "{INSIDE}/$key.$generation.0c" ]; do
  base={INSIDE}/$key.$generation
  {workers(shell, "$base", FIRST_WORKERS)}
  [ $? -eq 0 ] && exit
  generation=$((generation + 1))
done
"""


def injected(shell: str, count: int) -> str:
    """The script that the engine starts for worker shells of another user, or when none is left."""
    return f"base={INSIDE}/${KEY_VARIABLE}; unset {KEY_VARIABLE}; {workers(shell, '$base', count)}"


# When the host closes the pipe or dies, the worker shell ends and kills all commands, so that
# process 1 can end the container. The trap comes last: a worker shell that ends before it is ready,
# because no process was left for a substitution, must not kill what others run.
# run STDIN STDOUT STDERR FOLDER SETUP ARGUMENT...
# sweep HARD_LIMIT_IN_BYTES, or nothing for the processes of all commands
PRELUDE = b"""\
trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE
setsid=$(command -v setsid)
run() {
  (
    eval "$5" || exit 126
    echo s >&9 || exit 126
    exec 9>&-
    cd -- "$4" || exit 126
    unset OLDPWD
    shift 5
    exec $setsid "$@"
  ) <"$1" >"$2" 2>"$3"
}
limit_of() {
  hard=
  while read -r a b c soft hard rest; do
    case "$a $b $c" in 'Max resident set') break ;; esac
  done <"/proc/$1/limits"
}
sweep() {
  killed=0 seen=' ' passes=0 left=1
  while [ $left -gt 0 ] && [ $passes -lt 3000 ]; do
    left=0 passes=$((passes + 1))
    for process in /proc/[0-9]*; do
      process=${process#/proc/}
      limit_of "$process"
      case $hard in '' | "$base") continue ;; esac
      case $1 in '' | "$hard") ;; *) continue ;; esac
      state=
      read -r state <"/proc/$process/stat"
      state=${state##*) }
      case $state in '' | [ZX]*) continue ;; esac
      # Another user's; those workers end it.
      kill -9 "$process" || continue
      left=$((left + 1))
      case $seen in *" $process "*) ;; *) seen="$seen$process " killed=$((killed + 1)) ;; esac
    done
  done
  echo "k $killed $left" >&9
}
limit_of self
base=$hard
while read -r a b c; do
  case $a in Uid:) uid=$b ;; Gid:) gid=$b ;; esac
done </proc/self/status
if (: </proc/1/environ); then seal=open; else seal=sealed; fi
echo "handshake $uid $gid $seal $base ${setsid:+setsid} $(command -v bash)" >&9
trap sweep EXIT
"""

LEAVE = b"trap - EXIT\n"
"""Ends one worker shell without killing the commands."""


def mark(number: int) -> int:
    """The limit of the n-th command, in KiB."""
    return _MARKS_FROM + number


def start(
    argv: Sequence[bytes], *, stdin: bytes, stdout: bytes, stderr: bytes, cwd: bytes, setup: bytes
) -> bytes:
    """A frame that starts a command and reports its start and end.

    ``command eval``: where no process can be started a shell would else end itself. The report
    has a line of its own, because after some errors bash throws away the rest of the line.
    """
    words = (stdin, stdout, stderr, cwd, setup, *argv)
    return (
        b"set -- "
        + b" ".join(map(quoted, words))
        + b"""\ncommand eval 'run "$@"'\necho "e $?" >&9\nset --\n"""
    )


def kill(number: int | None) -> bytes:
    """A frame that kills what the n-th command has started; None means all commands."""
    limit = b"" if number is None else b" %d" % (mark(number) * 1024)
    return b"sweep%b\n" % limit


def more_workers(shell: str, base: str, count: int) -> bytes:
    """A frame that makes a worker shell the parent of others, until they have ended."""
    script = workers(shell, f"{INSIDE}/{base}", count)
    return b'command eval %b; echo "e $?" >&9\n' % quoted(script.encode())


def exports(env: Mapping[str, str]) -> bytes:
    """Shell script that puts variables into the environment."""
    return b"".join(
        b"export %b=%b;" % (name.encode(), quoted(as_bytes(value))) for name, value in env.items()
    )
