"""Check the name of a package and derive its module and component names."""

import keyword
import re
import sys

from attrs import frozen

from ale.strict import parse_yaml
from ale_workbench.new.kinds import COMMAND, Kind

_NORMAL = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# The core itself, and what pip can't install next to it.
_RESERVED = ("ale", "ale-core", "ale-workspace")

# Python's own tests are a package too, which this list leaves out.
_OF_PYTHON = sys.stdlib_module_names | {"test"}


@frozen(kw_only=True)
class Names:
    """The names of a package."""

    distribution: str
    """For ``pip install``: ``ale-criterion-min-size``."""
    module: str
    """For ``import``: ``ale_criterion_min_size``."""
    component: str
    """For ``type:`` in a config: ``min_size``."""

    @property
    def class_name(self) -> str:
        """The component's name for a class: ``MinSize``.

        The package's name where the component's begins with a digit, which a class's can't.
        """
        name = self.distribution if self.component[0].isdigit() else self.component
        return "".join(word.capitalize() for word in re.split("[-_]", name))


def names(name: str, kind: Kind) -> Names:
    """Check a name and derive the others.

    Args:
        name: distribution name, normalised as PEP 503 says: lower-case words of letters and
            digits, joined by single hyphens.

    Raises:
        ValueError: it is not normalised, its module would shadow one of Python's or `ale`'s, or
            a config could not select its component. The message suggests the nearest valid name.
    """
    reason = _problem(name)
    if reason is not None:
        raise ValueError(f"{reason}; try '{_suggestion(name, kind)}'")
    component = _component(name, kind)
    taken = None if kind == COMMAND else _meaning(component, kind)
    if taken is not None:
        message = f"its component would be '{component}', {taken}"
        raise ValueError(f"{message}; try 'ale-{kind.prefixes[0]}-my-{component}'")
    return Names(distribution=name, module=name.replace("-", "_"), component=component)


def _meaning(component: str, kind: Kind) -> str | None:
    """What a config means by ``type: COMPONENT`` where that is no component of this name."""
    if kind.name == "sandbox" and component == "auto":
        return "with which a config leaves the choice to ale"
    value = parse_yaml(component, file="").value
    if isinstance(value, str):
        return None
    of = "null" if value is None else "true or false" if isinstance(value, bool) else "a number"
    return f"which a config reads as {of}"


def _problem(name: str) -> str | None:
    """Why a name is not valid, or None."""
    module = name.replace("-", "_")
    if not _NORMAL.fullmatch(name):
        return f"'{name}' is not a normalised name: lower-case letters, digits, single hyphens"
    if not name[0].isalpha():
        return f"'{name}' begins with a digit, which a module's name can't"
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return f"'{name}' is a keyword of Python"
    if module in _OF_PYTHON:
        return f"'{name}' would shadow a module of Python's standard library"
    if name in _RESERVED:
        return f"'{name}' belongs to ale itself"
    return None


def _suggestion(name: str, kind: Kind) -> str:
    # CamelCase first, so that 'MinSize' becomes 'min-size' and not 'minsize'.
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    plain = re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-")
    if plain and _problem(plain) is None:
        return plain
    return f"ale-{kind.prefixes[0]}-{plain or 'mine'}"


def _component(name: str, kind: Kind) -> str:
    rest = name.removeprefix("ale-")
    found = (prefix for prefix in kind.prefixes if rest.startswith(f"{prefix}-"))
    return rest.removeprefix(f"{next(found, '')}-").replace("-", kind.joiner)
