"""Which members of a protocol an object lacks."""

from functools import cache
from inspect import get_annotations


def missing(product: object, protocol: type) -> list[str]:
    """Names of the protocol's methods and attributes that an object lacks, in alphabetical order.

    Unlike `isinstance`, it says what to add, and computes no property.
    """
    return [name for name in _members(protocol) if not _has(product, name)]


@cache
def _members(protocol: type) -> list[str]:
    """Public methods and attributes of a protocol class, those of its bases included."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in (*vars(base), *get_annotations(base))}
    return sorted(name for name in names if not name.startswith("_"))


def _has(product: object, name: str) -> bool:
    # The class first: a property must not be computed here.
    return hasattr(type(product), name) or hasattr(product, name)
