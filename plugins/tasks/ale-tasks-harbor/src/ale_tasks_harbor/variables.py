"""``${NAME}`` and ``${NAME:-default}`` in the variables of a task, taken from the host."""

import re
from collections.abc import Callable, Mapping

_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.S)
STORED = "the value of {name} looks like a secret, and would be stored with the run"
_SECRET = re.compile(r"KEY|SECRET|TOKEN(?!S)|PASSWORD|CREDENTIAL|AUTH", re.I)


class HostVariables(dict[str, str]):
    """The host's variables, and the names of those whose values were taken."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.taken: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.taken.add(name)
        return super().__getitem__(name)


def resolved(
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    refuse: Callable[[str, str], None],
) -> dict[str, str]:
    """The variables with their templates filled in. A value is a template as a whole or not at all.

    Args:
        refuse: called with the name of each variable that can't be filled in, and why.
    """
    made = {}
    for name, value in variables.items():
        match = _TEMPLATE.fullmatch(value)
        if match is None:
            made[name] = value
        elif match[1] in environ:
            made[name] = environ[match[1]]
        elif match[2] is not None:
            made[name] = match[2]
        else:
            refuse(name, f"the variable {match[1]} of the host is not set, and has no default")
    return made


def looks_secret(name: str) -> bool:
    """By a variable's name."""
    return _SECRET.search(name) is not None


def from_host(
    variables: Mapping[str, str],
    environ: Mapping[str, str],
    refuse: Callable[[str, str], None],
) -> dict[str, str]:
    """As `resolved`, for what is stored with the run: a secret of the host is refused."""
    for name, value in variables.items():
        match = _TEMPLATE.fullmatch(value)
        if match is not None and match[1] in environ and looks_secret(match[1]):
            refuse(name, STORED.format(name=match[1]))
    return resolved(variables, environ, refuse)
