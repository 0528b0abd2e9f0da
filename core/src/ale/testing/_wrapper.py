"""An object that stands in place of another one."""

from typing import Any, Self


class Wrapper:
    """Has the public attributes of another object, also for `isinstance` with a protocol.

    Since Python 3.12, `isinstance` asks no `__getattr__`: it finds what is in the class.

    Args:
        inner: the other object.
    """

    def __new__(cls, inner: Any) -> Self:
        names = {name for name in dir(inner) if not name.startswith("_")} - {*dir(cls)}
        attributes = {name: _passed_on(name) for name in names}
        return object.__new__(type(cls.__name__, (cls,), attributes))

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _passed_on(name: str) -> property:
    return property(lambda self: self.__getattr__(name))
