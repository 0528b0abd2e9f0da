"""The names of a package: checked, and derived from one another."""

import keyword
import re
import sys

from attrs import frozen

from ale_new.kinds import Kind

_NORMAL = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# The core's own, and what pip can't install next to it.
_TAKEN = ("ale", "ale-core", "ale-workspace")


@frozen(kw_only=True)
class Names:
    """Every name that a package goes by."""

    distribution: str
    """What ``pip install`` takes: ``ale-criterion-min-size``."""
    module: str
    """What ``import`` takes: ``ale_criterion_min_size``."""
    component: str
    """What a config writes after ``type:``: ``min_size``."""

    @property
    def class_name(self) -> str:
        """The component's name for a class: ``MinSize``."""
        return "".join(word.capitalize() for word in re.split("[-_]", self.component))


def names(name: str, kind: Kind) -> Names:
    """Check a name and derive the others.

    Args:
        name: distribution name, normalised as PEP 503 says: lower-case words of letters and
            digits, joined by single hyphens.

    Raises:
        ValueError: it is not; or its module would shadow Python's or `ale`'s. The message ends
            with the nearest name that is free of that.
    """
    reason = _fault(name)
    if reason is not None:
        raise ValueError(f"{reason}; try '{_suggestion(name, kind)}'")
    return Names(distribution=name, module=name.replace("-", "_"), component=_component(name, kind))


def _fault(name: str) -> str | None:
    """Why a name can't be taken, or None."""
    module = name.replace("-", "_")
    if not _NORMAL.fullmatch(name):
        return f"'{name}' is not a normalised name: lower-case letters, digits, single hyphens"
    if not name[0].isalpha():
        return f"'{name}' begins with a digit, which a module's name can't"
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return f"'{name}' is a keyword of Python"
    if module in sys.stdlib_module_names:
        return f"'{name}' would shadow a module of Python's standard library"
    if name in _TAKEN:
        return f"'{name}' belongs to ale itself"
    return None


def _suggestion(name: str, kind: Kind) -> str:
    # CamelCase first, so that 'MinSize' becomes 'min-size' and not 'minsize'.
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    plain = re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-")
    if plain and _fault(plain) is None:
        return plain
    return f"ale-{kind.prefixes[0]}-{plain or 'mine'}"


def _component(name: str, kind: Kind) -> str:
    rest = name.removeprefix("ale-")
    found = (prefix for prefix in kind.prefixes if rest.startswith(f"{prefix}-"))
    return rest.removeprefix(f"{next(found, '')}-").replace("-", kind.joiner)
