"""What can be written: one entry per kind of plugin."""

from collections.abc import Mapping

from attrs import frozen

from ale.errors import nearest


@frozen(kw_only=True)
class Kind:
    """One kind of plugin. Its files are ``templates/<kind>/``."""

    name: str
    """As ``ale plugins`` and configs have it, and ``ale new`` takes it."""
    prefixes: tuple[str, ...]
    """Words that a package's name may begin with, and that its component's name leaves out."""
    joiner: str = "-"
    """What stands between the words of a component's name."""
    noun: str = ""
    """What one of them is, in words, where that is not the name."""

    @property
    def words(self) -> str:
        """What one of them is."""
        return self.noun or self.name

    @property
    def stem(self) -> str:
        """The kind as part of a file's name."""
        return self.words.replace(" ", "_")


_ALL = (
    Kind(name="tasks", noun="task source", prefixes=("task-source", "tasks")),
    Kind(name="sandbox", prefixes=("sandbox",)),
    Kind(name="llm", prefixes=("llm",)),
    Kind(name="agent", prefixes=("agent",)),
    Kind(name="criterion", prefixes=("criterion", "criteria"), joiner="_"),
    Kind(name="chunker", prefixes=("chunker", "chunkers")),
    Kind(name="credit", noun="credit scheme", prefixes=("credit-scheme", "credit")),
    Kind(name="starts", noun="start scheme", prefixes=("start-scheme", "starts", "start")),
    Kind(name="trainer", prefixes=("trainer", "train")),
    Kind(name="observer", prefixes=("observer", "observe")),
    Kind(name="command", prefixes=("command",)),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}

COMMAND = KINDS["command"]
"""The one kind that is no component: `ale --help` lists it, not `ale plugins`."""


def kind_named(name: str) -> Kind:
    """The kind of a name: that of configs, or what one is in words, such as ``credit-scheme``.

    Raises:
        ValueError: there is none. The message ends with the nearest, where one is near.
    """
    names = {**KINDS, **{kind.words.replace(" ", "-"): kind for kind in _ALL}}
    if name not in names:
        hint = nearest(name, names)
        said = f"'{name}' is no kind of plugin: one of {', '.join(KINDS)}"
        raise ValueError(f"{said}; {hint}" if hint else said)
    return names[name]
