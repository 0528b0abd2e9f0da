"""The supervisor, in POSIX shell: all that runs in a container besides its commands.

Process 1 starts a few *lanes* and waits: it reaps what is orphaned, and starts new lanes when the
old ones have been killed. As process 1 it can't be killed or stopped from inside. A lane is a shell
that reads script from one pipe and answers on another, its descriptor 9. It runs one command at a
time, in the foreground: a shell's background jobs would ignore SIGINT for all that they start.
The lanes stand in a pipeline only so that they start side by side without being background jobs.

Process 1 and lanes run a copy of the image's own shell that nobody inside may read. The kernel
does not let such a process be traced or looked into (its memory, its descriptors) by others of the
same user. It is needed only where the program inside has the same user as the supervisor: always.

Each command carries a mark that all its descendants inherit, whatever they do to their group,
session, parent or environment: RLIMIT_RSS, which Linux has ignored since 2.4.30, and which nobody
without a capability can raise again. ``sweep`` finds it in ``/proc``, with nothing but what is
built into the shell, so that it works where no process is left to be had.
"""

from collections.abc import Mapping, Sequence

from ale_sandbox_container.door import INSIDE
from ale_sandbox_shell.text import as_bytes, quoted

KEY = "key"
KEY_VARIABLE = "ALE_KEY"
FIRST_LANES = 3
"""One to spare, one for a session, one for a command beside it."""

_MARKS_FROM = 1 << 40
"""KiB; far above any real limit."""


def lanes(shell: str, base: str, count: int) -> str:
    """Shell script that runs `count` lanes until all have ended.

    Args:
        base: where their pipes are, as a word of script.
    """
    return " | ".join(
        f'{shell} <"{base}.{number}c" 9>"{base}.{number}r" >/dev/null 2>&1'
        for number in range(count)
    )


def first(shell: str) -> str:
    """What process 1 runs. Its pipes' names come from a file that is gone before any command."""
    return f"""\
read -r key <{INSIDE}/{KEY} || exit 1
generation=0
while [ -p "{INSIDE}/$key.$generation.0c" ]; do
  base={INSIDE}/$key.$generation
  {lanes(shell, "$base", FIRST_LANES)}
  [ $? -eq 0 ] && exit
  generation=$((generation + 1))
done
"""


def injected(shell: str, count: int) -> str:
    """What is run by the engine to get lanes of another user, or any when none is left."""
    return f"base={INSIDE}/${KEY_VARIABLE}; unset {KEY_VARIABLE}; {lanes(shell, '$base', count)}"


# When the host lets go of a lane, or dies, the lane ends, and with it all commands; so nothing
# keeps process 1 from ending the container. The trap comes last: a lane that ends before it is
# ready, because it could have no process for a substitution, must not end what others run.
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
      # Another user's; those lanes end it.
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
echo "hello $uid $gid $seal $base ${setsid:+setsid} $(command -v bash)" >&9
trap sweep EXIT
"""

LEAVE = b"trap - EXIT\n"
"""For a lane that is not wanted: its end shall not be that of all commands."""


def mark(number: int) -> int:
    """The limit of the n-th command, in KiB."""
    return _MARKS_FROM + number


def start(
    argv: Sequence[bytes], *, stdin: bytes, stdout: bytes, stderr: bytes, cwd: bytes, setup: bytes
) -> bytes:
    """A frame that starts a command and tells its beginning and its end.

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


def more_lanes(shell: str, base: str, count: int) -> bytes:
    """A frame that turns a lane into the parent of others, until they have ended."""
    script = lanes(shell, f"{INSIDE}/{base}", count)
    return b'command eval %b; echo "e $?" >&9\n' % quoted(script.encode())


def exports(env: Mapping[str, str]) -> bytes:
    """Shell script that puts variables into the environment."""
    return b"".join(
        b"export %b=%b;" % (name.encode(), quoted(as_bytes(value))) for name, value in env.items()
    )
