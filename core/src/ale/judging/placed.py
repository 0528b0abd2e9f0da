"""New files of an agent's work in the system's folders, where only the work looks for them.

The list of tools takes these folders as a whole, as any file there may be what some tool looks for.
Beside a reference solution's pass fewer are worth a second look: not those that the work names by
their path, where none of the image's tools is known to look.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from ale.judging import loader
from ale.protocols import Judge
from ale.types import CarriedChange

_PLACES = (
    *("/usr/local/libexec", "/usr/local/share", "/usr/local/lib", "/usr/local/etc"),
    *("/etc/default", "/etc", "/var/lib"),
)
_SUFFIXES = r"(?:\.(?:conf|cfg|cnf|ini|toml|ya?ml|json|xml|env|properties|list|txt|local|d))+"
_OF_ITS_NAME = re.compile(rf"(?P<name>.+?)(?:rc|[._-]?config)?(?:{_SUFFIXES})?")
_LIBRARY = re.compile(r"\.(?:so[.0-9]*|a|la|jar|egg|pth|gem)$")
# Names below these folders that tools, languages and the system look for, without a program of
# their own name.
_KNOWN = re.compile(
    r"(?:ld\.so|nsswitch|resolv|hosts?|gai|environment|profile|bash|zsh|ksh|fish|inputrc|readline"
    r"|login|pam|security|locale|localtime|timezone|terminfo|font|magic|mime|mailcap|services"
    r"|protocols|networks|shells|passwd|shadow|gshadow|group|sub[ug]id|sudoers|doas|cron|anacron"
    r"|ssl|ssh|pki|ca-cert|crypto|krb5|gss|selinux|apparmor|alternatives|apt|dpkg|yum|dnf|rpm|apk"
    r"|git|hg|svn|mercurial|subversion|curl|wget|netrc|proxychains|tsocks"
    r"|pip|uv|conda|mamba|pydistutils|boto|jupyter|ipython|matplotlib|pytest|py(?:thon|py|3)"
    r"|site|dist|npm|node|yarn|pnpm|deno|bun|gem|ruby|bundle|rspec|irb|perl|cpan|prove"
    r"|lua|luarocks|php|composer|tcl|tk\b|r\b|R\b|octave|julia|ocaml|opam|ghc|cabal|stack|erlang"
    r"|elixir|mix|go\b|golang|gopath|cargo|rust|java|jvm|maven|m2|gradle|ant\b|sbt|scala|kotlin"
    r"|dotnet|mono|swift|emacs|vim|nano|gdb|valgrind|gcc|g\+\+|clang|llvm|ccache|make|cmake|ctest"
    r"|ninja|meson|bazel|pkg-?config|aclocal|autoconf|automake|libtool|girepository|gconv|iconv"
    r"|my\b|mysql|maria|postgres|psql|pg_|sqlite|odbc|redis|mongo|nginx|apache|httpd|lighttpd"
    r"|systemd|udev|init|rc\d|sysctl|modprobe|modules|fuse|logrotate|rsyslog|syslog|supervisor"
    r"|docker|podman|containers|kubernetes|ansible|xdg|X11|skel|motd|issue|os-release|lsb"
    r"|debian|machine-id|hostname|aliases|rpc|ethertypes|man|info|doc|locale|zoneinfo|useradd"
    r"|grub|keyboard|console|nss|networkd|keyrings|polkit|dbus|glib|gtk|qt|bash-completion"
    r"|screen|tmux|less|ansi|dir_?colors|jq|yq|lint|flake8|pylint|shellcheck|eslint|tslint)",
)


def _place_of(path: str) -> str | None:
    return next((each for each in _PLACES if path.startswith(f"{each}/")), None)


async def is_found_by_work_alone(change: CarriedChange, judge: Judge, path: Sequence[str]) -> bool:
    """Whether a change is a new file where no tool of the image's is known to look: a setting, or
    one in a folder of the work's own.

    Args:
        path: folders in which a shell looks for programs.
    """
    place = _place_of(change.path)
    if change.kind != "added" or place is None or _LIBRARY.search(change.path):
        return False
    head, _, rest = change.path.removeprefix(f"{place}/").partition("/")
    if not rest and not (place.endswith("etc") or place == "/etc/default"):
        return False
    if rest and await judge.has(f"{place}/{head}", image=True):
        return False
    found = _OF_ITS_NAME.fullmatch(head)
    name = head if found is None else found["name"]
    if _KNOWN.match(head) or head.startswith("."):
        return False
    return not await loader.has_any(judge, path, head) and not await loader.has_any(
        judge, path, name
    )


def named_in_work(change: CarriedChange, texts: Sequence[bytes]) -> bool:
    """Whether one of the texts has its whole path in it, or that of a folder above that is not
    the system's own."""
    wanted = "|".join(map(re.escape, _names(change.path)))
    pattern = re.compile(rf"(?<![\w./-])(?:{wanted})(?![\w-])".encode(errors="surrogateescape"))
    return any(pattern.search(each) for each in texts)


def _names(path: str) -> Iterator[str]:
    place = _place_of(path) or "/"
    while path not in (place, "/"):
        yield path
        path = posixpath.dirname(path)
