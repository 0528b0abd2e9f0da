"""What a persistent bash holds beside files, as text: read, given to another shell, and compared.

Everything that is read is compared; what is given to the other shell is the part of it that shell
code can set. Whatever else is not as it was makes the two unequal.
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
"""Variables that bash itself keeps; what of them a command can set is read in another way."""

# Shell options first, as they are: what follows must work under any of them.
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

# Another shell must be able to read this to its end, and `$?` is afterwards what it was. Under
# errexit a shell that still runs had nothing to lose there, and nothing here may end it.
READ = f"""__ale_status=$?
if [ "${{BASH_VERSION-}}" ]; then eval {shlex.quote(_READ)} || builtin :; fi
case $- in
  *e*) unset __ale_status ;;
  *) eval "unset __ale_status; (exit $__ale_status)" ;;
esac"""


class UnknownStateError(Exception):
    """What a shell holds can't be read; the text says why."""


@frozen
class ShellState:
    """What was read, by name."""

    parts: Mapping[str, str]

    def since(self, fresh: "ShellState") -> "Change":
        """What has changed in a shell since it was `fresh`.

        Two shells are only compared in this: each has marks of its sandbox and limits of its own
        from the beginning.
        """
        changed = {n: text for n, text in self.parts.items() if fresh.parts.get(n) != text}
        for name in ("shopt", "options"):
            before = fresh.parts.get(name, "").splitlines()
            lines = [line for line in changed.get(name, "").splitlines() if line not in before]
            if lines:
                changed[name] = "\n".join(lines)
        return Change(set_=changed, gone=frozenset({*fresh.parts} - {*self.parts}))


@frozen(kw_only=True)
class Change:
    """What the commands of a session have done to its shell."""

    set_: Mapping[str, str]
    gone: frozenset[str]

    def differs(self, other: "Change") -> str:
        """The name of the first part that is not the same, or nothing."""
        names = sorted({*self.set_, *other.set_, *(self.gone ^ other.gone)})
        differing = (n for n in names if self.set_.get(n) != other.set_.get(n))
        return next(differing, next(iter(sorted(self.gone ^ other.gone)), ""))

    @property
    def script(self) -> str:
        """Shell code that does it to a fresh shell, as far as shell code can."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if "folder" in self.set_:
            yield f"builtin cd -- {shlex.quote(self.set_['folder'])}"
        # A variable may have lost an attribute.
        yield from _unset("unset -v", "variable", self.gone | {*self.set_})
        yield from _texts("variable", self.set_)
        if "aliases" in self.set_:
            yield f"builtin unalias -a\n{self.set_['aliases']}"
        if "umask" in self.set_:
            yield f"builtin umask {self.set_['umask']}"
        if "arguments" in self.set_:
            yield f"builtin set -- {self.set_['arguments']}"
        # After what a function could stand in for.
        yield from _unset("unset -f", "function", self.gone)
        yield from _texts("function", self.set_)
        # Last: under some options what stands above would fail.
        for name in ("shopt", "options"):
            yield from (f"builtin {line}" for line in self.set_.get(name, "").splitlines())
        status = self.set_.get("status", "0").strip()
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
    """What a session's shell holds. For the shell it is as if nothing had been run.

    Raises:
        UnknownStateError: it is no bash, or has too much to say.
        SandboxError: as `Session.run`.
    """
    result = await session.run(READ, timeout_s=timeout_s)
    text = result.stdout.decode("utf-8", "surrogateescape")
    parts = dict(_part(part) for part in text.split("\0") if part)
    if result.truncated or "end" not in parts:
        raise UnknownStateError("a session's shell can't be read: it is no bash, or holds too much")
    return ShellState(parts)


def _part(text: str) -> tuple[str, str]:
    name, _, rest = text.partition("\n")
    return name, rest
