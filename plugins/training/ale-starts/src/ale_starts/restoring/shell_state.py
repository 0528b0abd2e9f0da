"""The state of a persistent bash session, as text: read, restored in another shell, compared.

Everything that is read is compared; what shell code can set is restored. Any remaining difference
makes the two shells unequal.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping

from attrs import frozen

from ale.protocols import Session

_CHANGING = (
    "BASH|BASHOPTS|BASHPID|BASH_ALIASES|BASH_ARGC|BASH_ARGV|BASH_ARGV0|BASH_CMDS|BASH_COMMAND|"
    "BASH_EXECUTION_STRING|BASH_LINENO|BASH_REMATCH|BASH_SOURCE|BASH_SUBSHELL|BASH_VERSINFO|"
    "BASH_VERSION|COMP_WORDBREAKS|DIRSTACK|EPOCHREALTIME|EPOCHSECONDS|EUID|FUNCNAME|GROUPS|"
    "HISTCMD|HOSTNAME|LINENO|PIPESTATUS|PPID|RANDOM|SECONDS|SHELLOPTS|SRANDOM|UID|_|__ale_*"
)
"""Variables that bash maintains itself; state in them that commands can set is read separately."""

# Shell options are read first and not changed: the rest must work under any of them.
_READ = rf"""
builtin printf 'status\n%s\0' "$__ale_status"
builtin printf 'options\n'; builtin set +o; builtin printf '\0'
builtin printf 'shopt\n'; builtin shopt -p; builtin printf '\0'
builtin printf 'arguments\n'; builtin printf '%q ' "$@"; builtin printf '\0'
builtin printf 'folder\n%s\0' "$PWD"
builtin printf 'real folder\n'; builtin pwd -P; builtin printf '\0'
builtin printf 'folders\n'; builtin dirs -l -p; builtin printf '\0'
builtin printf 'umask\n'; builtin umask; builtin printf '\0'
builtin printf 'limits\n'; builtin ulimit -a; builtin printf '\0'
builtin printf 'traps\n'; builtin trap -p; builtin printf '\0'
builtin printf 'jobs\n'; builtin jobs -p; builtin printf '\0'
builtin printf 'disabled\n'; builtin enable -n; builtin printf '\0'
builtin printf 'aliases\n'; builtin alias -p; builtin printf '\0'
( builtin printf 'descriptors\n'
  for ((__ale_name = 3; __ale_name < 255; __ale_name++)); do
    {{ builtin : <&"$__ale_name"; }} 2>/dev/null && builtin printf '%s ' "$__ale_name"
  done )
builtin printf '\0'
builtin compgen -v | while IFS= builtin read -r __ale_name; do
  case $__ale_name in {_CHANGING}) builtin continue ;; esac
  builtin printf 'variable %s\n' "$__ale_name"
  builtin declare -p "$__ale_name" 2>/dev/null; builtin printf '\0'
done
builtin compgen -A function | while IFS= builtin read -r __ale_name; do
  builtin printf 'function %s\n' "$__ale_name"
  builtin declare -pf "$__ale_name" 2>/dev/null; builtin printf '\0'
done
builtin unset -v __ale_name
builtin printf 'end\n\0'
"""

# Shells other than bash must be able to parse this, and `$?` must be preserved. Under errexit `$?`
# is 0 in a shell that still runs, and no command here may fail.
READ = f"""__ale_status=$?
if [ "${{BASH_VERSION-}}" ]; then eval {shlex.quote(_READ)} || builtin :; fi
case $- in
  *e*) unset __ale_status ;;
  *) eval "unset __ale_status; (exit $__ale_status)" ;;
esac"""


class UnknownStateError(Exception):
    """A shell's state can't be read; the message says why."""


@frozen
class ShellState:
    """Parts of a shell's state by name."""

    parts: Mapping[str, str]

    def since(self, fresh: "ShellState") -> "Change":
        """The changes relative to the state of the same shell when it was opened.

        Only changes are compared between shells: initial states differ by sandbox.
        """
        changed = {n: text for n, text in self.parts.items() if fresh.parts.get(n) != text}
        for name in ("shopt", "options"):
            before = fresh.parts.get(name, "").splitlines()
            lines = [line for line in changed.get(name, "").splitlines() if line not in before]
            if lines:
                changed[name] = "\n".join(lines)
        return Change(changed=changed, removed=frozenset({*fresh.parts} - {*self.parts}))


@frozen(kw_only=True)
class Change:
    """Changes to a shell by the commands of a session."""

    changed: Mapping[str, str]
    removed: frozenset[str]

    def differs(self, other: "Change") -> str:
        """The name of the first part that differs; empty if none does."""
        names = sorted({*self.changed, *other.changed, *(self.removed ^ other.removed)})
        differing = (n for n in names if self.changed.get(n) != other.changed.get(n))
        return next(differing, next(iter(sorted(self.removed ^ other.removed)), ""))

    @property
    def script(self) -> str:
        """Shell code that makes these changes in a new shell, as far as shell code can."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if "folder" in self.changed:
            yield f"builtin cd -- {shlex.quote(self.changed['folder'])}"
        # Unset first: a variable may have lost an attribute.
        yield from _unset("unset -v", "variable", self.removed | {*self.changed})
        yield from _texts("variable", self.changed)
        if "aliases" in self.changed:
            yield f"builtin unalias -a\n{self.changed['aliases']}"
        if "umask" in self.changed:
            yield f"builtin umask {self.changed['umask']}"
        if "arguments" in self.changed:
            yield f"builtin set -- {self.changed['arguments']}"
        # Functions come after commands that they could shadow.
        yield from _unset("unset -f", "function", self.removed)
        yield from _texts("function", self.changed)
        # Options come last: under some of them the code above would fail.
        for name in ("shopt", "options"):
            yield from (f"builtin {line}" for line in self.changed.get(name, "").splitlines())
        status = self.changed.get("status", "0").strip()
        yield f"case $- in *e*) ;; *) (builtin exit {status}) ;; esac"


def _unset(command: str, kind: str, names: Iterable[str]) -> Iterator[str]:
    for name in sorted(names):
        found, _, rest = name.partition(" ")
        if found == kind and rest != "PWD":  # cd has set it
            yield f"builtin {command} {shlex.quote(rest)} 2>/dev/null"


def _texts(kind: str, parts: Mapping[str, str]) -> Iterator[str]:
    for name, text in sorted(parts.items()):
        found, _, rest = name.partition(" ")
        if found == kind and rest != "PWD":
            yield text


async def read(session: Session, timeout_s: float) -> ShellState:
    """Read the state of a session's shell, without changing it.

    Raises:
        UnknownStateError: it is not bash, or its state is too large.
        SandboxError: as for `Session.run`.
    """
    result = await session.run(READ, timeout_s=timeout_s)
    text = result.stdout.decode("utf-8", "surrogateescape")
    parts = dict(_part(part) for part in text.split("\0") if part)
    if result.truncated or "end" not in parts:
        raise UnknownStateError(
            "a session's shell state can't be read: it is not bash, or the state is too large"
        )
    return ShellState(parts)


def _part(text: str) -> tuple[str, str]:
    name, _, rest = text.partition("\n")
    return name, rest
