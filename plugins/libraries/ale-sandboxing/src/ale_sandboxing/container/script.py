"""What runs in a container besides its commands: shells, and the script that is sent to them.

Process 1 does nothing but start the *supervisor*, again where that was killed, and reap orphaned
processes; at first it writes ``/etc/hosts`` where the engine has left that empty. The supervisor
kills commands. Commands run in *workers*: shells that the engine starts, each with a stream of its
own. A worker runs one command at a time, in the foreground: background jobs of a shell ignore
SIGINT, and so would all their children.

All of these run a copy of the image's own shell that nobody inside may read. The kernel does not
let other processes of the same user trace such a process or read its memory and descriptors.

Each command carries a tag that all its descendants inherit, whatever they do to their group,
session, parent or environment: RLIMIT_RSS, which Linux has ignored since 2.4.30, and which nobody
without a capability can raise again. The tags are found in ``/proc``, with nothing but what is
built into the shell, so that it works where no process is left to be had.
"""

from collections.abc import Mapping, Sequence

from ale_sandboxing.shell.text import as_bytes, quoted

PROCESS_1 = """\
[ -s /etc/hosts ] || { echo 127.0.0.1 localhost; echo ::1 localhost; } 2>/dev/null >/etc/hosts
tries=0
while [ $tries -lt 100000 ]; do
  command eval '"$0"'
  [ $? -eq 0 ] && exit
  tries=$((tries + 1))
  echo again
done
exit 9
"""
"""Its one argument is the path of the shell. At the end of its stdin, when the host closes the
stream or dies, the supervisor ends with 0, and with process 1 the whole container ends. Where the
shell can't be started any more, and nobody starts the container again, it ends after a while."""

_TAGS_FROM = 1 << 40
"""KiB; far above any real limit."""

# limit_of PROCESS: sets `hard`, empty for a process that has ended
# tagged TAG, or nothing for all commands: sets `found` to the processes that live
# sweep TAG, or nothing for all commands: kills, until nothing is left; sets `killed` and `left`
# holds TAG [PROCESS]: sets `found` where a process with the tag lives, and has open what the holder
#   PROCESS has open for stdout or stderr
_FUNCTIONS = b"""\
limit_of() {
  hard=
  while read -r a b c soft hard rest; do
    case "$a $b $c" in 'Max resident set') break ;; esac
  done <"/proc/$1/limits"
}
tagged() {
  found=
  for process in /proc/[0-9]*; do
    process=${process#/proc/}
    limit_of "$process"
    case $hard in '' | "$base") continue ;; esac
    case $1 in '' | "$hard") ;; *) continue ;; esac
    state=
    read -r state <"/proc/$process/stat"
    state=${state##*) }
    case $state in '' | [ZX]*) ;; *) found="$found $process" ;; esac
  done
}
sweep() {
  killed=0 seen=' ' passes=0 left=1
  while [ $left -gt 0 ] && [ $passes -lt 3000 ]; do
    left=0 passes=$((passes + 1))
    tagged "$1"
    for process in $found; do
      # Another user's; a worker of that user ends it.
      kill -9 "$process" || continue
      left=$((left + 1))
      case $seen in *" $process "*) ;; *) seen="$seen$process " killed=$((killed + 1)) ;; esac
    done
  done
}
holds() {
  found=0
  for process in /proc/[0-9]*; do
    [ "$process" != "/proc/$2" ] || continue
    limit_of "${process#/proc/}"
    [ "$hard" = "$1" ] || continue
    [ -n "$2" ] || found=1
    for file in "$process"/fd/*; do
      if [ "$file" -ef "/proc/$2/fd/1" ] || [ "$file" -ef "/proc/$2/fd/3" ]; then found=1; fi
    done
  done
}
kill_tagged() { sweep "$1"; echo "k $killed $left"; }
kill_all() { tagged; set -- $found; kill -9 -1; sweep; echo "k $# $left"; }
look() { holds "$1" "$2"; echo "k $found 0"; }
answer() { echo 'k 0 0'; }
running() { tagged; set -- $found; echo "k $# 0"; }
count() { set -- /proc/[0-9]*/task/[0-9]*; echo "k $# 0"; }
limit_of self
base=$hard
"""

SUPERVISOR = (
    b"exec 2>/dev/null\n"
    + _FUNCTIONS
    + b"""\
while read -r a b c; do
  case $a in Uid:) uid=$b ;; Gid:) gid=$b ;; esac
done </proc/self/status
while read -r a b c a point rest; do
  case " $rest " in *' - tmpfs '* | *' - ramfs '* | *' - devtmpfs '* | *' - proc '* | \
    *' - sysfs '* | *' - devpts '* | *' - mqueue '* | *' - cgroup '* | *' - cgroup2 '*)
    echo "mount $point" ;;
  esac
done </proc/self/mountinfo
echo "handshake $uid $gid $base $(command -v bash)"
"""
)
"""Its last lines say what `worker.Handshake` reads: mounts that the engine's archive calls do not
see, and the facts of its process."""

# What is printed after a command are the marks, so its stdout and stderr are the stream's own; the
# worker's own errors go nowhere.
# end MARK CODE
WORKER = (
    b"exec 3>&2 2>/dev/null\ntrap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE\n"
    + _FUNCTIONS
    + b"""\
setsid=$(command -v setsid)
end() {
  echo "$1 e $2" /proc/[0-9]*
  echo "$1 e" >&3
}
"""
)


def tag(number: int) -> int:
    """The limit of the n-th command, in KiB."""
    return _TAGS_FROM + number


def _in_bytes(number: int) -> bytes:
    return b"%d" % (tag(number) * 1024)


# Of a worker whose arguments are a mark, a folder and the words of a command. All is redirected
# inside: dash and busybox lose the redirections of `(...)` where it ends a `{...}`.
_CHILD = (
    b'(exec 2>&3 3>&- %b;%b||exit 126;echo "$1 s"||exit 126;cd -- "$2"||exit 126;unset OLDPWD;'
    b'shift 2;exec $setsid "$@")'
)


def command(
    mark: bytes,
    argv: Sequence[bytes],
    *,
    setup: bytes,
    cwd: bytes,
    stdin: bytes | None = None,
    text: bytes | None = None,
) -> bytes:
    """Start a command in a worker; `mark` is printed at its start and its end.

    ``command eval``: where no process can be started a shell would else end itself. The end has a
    line of its own, because after some errors bash throws away the rest of the line.

    Args:
        setup: script that its process runs before it becomes the command.
        stdin: None for none.
        text: what its descriptor 4 is to read.
    """
    opened = (b"</dev/null " if stdin is None else b"") + (b"" if text is None else b"4<&5 5<&-")
    call = (b"" if stdin is None else _printing(stdin)) + _CHILD % (opened, setup)
    if text is not None:
        call = _printing(text) + b"{ " + call + b"; } 5<&0"
    words = b" ".join(map(quoted, (mark, cwd, *argv)))
    return b"set -- %b\ncommand eval %b\nend %b $?\nset --\n" % (words, quoted(call), mark)


def shell(mark: bytes, argv: Sequence[bytes], *, setup: bytes, cwd: bytes) -> bytes:
    """Start a shell in a worker that is used for nothing else: it reads the worker's stdin."""
    words = b" ".join(map(quoted, (mark, cwd, *argv)))
    call = quoted(_CHILD % (b"", setup))
    return b"set -- %b; command eval %b; end %b $?; exit\n" % (words, call, mark)


def _printing(data: bytes) -> bytes:
    """The first part of a pipeline, which writes `data`."""
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    return b"".join([b"{ :; ", *(b"printf '%b'; " % _escaped(piece) for piece in pieces), b"} | "])


_PIECE = 1 << 16
_PLAIN = frozenset(range(0x20, 0x7F)) - set(b"%\\'")
_ESCAPES = [bytes([code]) if code in _PLAIN else b"\\%03o" % code for code in range(256)]


def _escaped(data: bytes) -> bytes:
    return b"".join([_ESCAPES[code] for code in data])


# One function each: a supervisor that has just been started knows none, and so answers nothing
# before it has been sent its script.


def kill(number: int) -> bytes:
    """Kill what the n-th command has started; prints how many were killed and how many are left."""
    return b"kill_tagged %b\n" % _in_bytes(number)


KILL_ALL = b"kill_all\n"
"""Kill all commands and workers; prints how many processes commands had, and how many are left."""

ANSWER = b"answer\n"
"""Nothing but an answer."""


RUNNING = b"running\n"
"""Prints how many processes of commands there are."""

COUNT = b"count\n"
"""Prints how many threads there are."""


def has(number: int, holder: bytes = b"") -> bytes:
    """Does anything of the n-th command live, with the output of the process `holder` open?"""
    return b"look %b %b\n" % (_in_bytes(number), holder)


def exports(env: Mapping[str, str]) -> bytes:
    """Shell script that puts variables into the environment."""
    return b"".join(
        b"export %b=%b;" % (name.encode(), quoted(as_bytes(value))) for name, value in env.items()
    )
