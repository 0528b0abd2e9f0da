"""What can be written: one entry per kind of plugin."""

from collections.abc import Mapping

from attrs import frozen


@frozen(kw_only=True)
class Kind:
    """One kind of plugin. Its files are ``templates/<kind>/``."""

    name: str
    """As ``ale new`` takes it."""
    listed: str | None
    """As ``ale plugins`` lists it; None for commands, which `ale --help` lists."""
    prefixes: tuple[str, ...]
    """Words that a package's name may begin with, and that its component's name leaves out."""
    joiner: str = "-"
    """What stands between the words of a component's name."""

    @property
    def stem(self) -> str:
        """The kind as part of a file's name."""
        return self.name.replace("-", "_")


_ALL = (
    Kind(name="task-source", listed="tasks", prefixes=("task-source", "tasks")),
    Kind(name="sandbox", listed="sandbox", prefixes=("sandbox",)),
    Kind(name="llm", listed="llm", prefixes=("llm",)),
    Kind(name="agent", listed="agent", prefixes=("agent",)),
    Kind(name="criterion", listed="criterion", prefixes=("criterion", "criteria"), joiner="_"),
    Kind(name="chunker", listed="chunker", prefixes=("chunker", "chunkers")),
    Kind(name="credit-scheme", listed="credit", prefixes=("credit-scheme", "credit")),
    Kind(name="trainer", listed="trainer", prefixes=("trainer", "train")),
    Kind(name="observer", listed="observer", prefixes=("observer", "observe")),
    Kind(name="command", listed=None, prefixes=("command",)),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
