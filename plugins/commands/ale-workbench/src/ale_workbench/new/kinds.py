"""The kinds of plugin that `ale new` writes."""

from collections.abc import Mapping

from attrs import frozen

from ale.errors import nearest
from ale_workbench.new.workspaces import WORKSPACES


@frozen(kw_only=True)
class Kind:
    """One kind of plugin. Its files are ``templates/<kind>/``."""

    name: str
    """As ``ale plugins`` and configs have it, and ``ale new`` takes it."""
    prefixes: tuple[str, ...]
    """Prefixes of a package's name that its component's name leaves out."""
    joiner: str = "-"
    """Separator of the words of a component's name."""
    noun: str = ""
    """The kind in prose, where that is not `name`."""
    test_needs: tuple[str, ...] = ()
    """Requirements of the package's tests, beside the kits."""

    @property
    def words(self) -> str:
        """The kind in prose: ``task source``."""
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
    Kind(name="middleware", prefixes=("middleware",)),
    Kind(name="criterion", prefixes=("criterion", "criteria"), joiner="_"),
    Kind(name="chunker", prefixes=("chunker", "chunkers")),
    Kind(name="scorer", noun="step scorer", prefixes=("step-scorer", "scorer", "scorers")),
    Kind(name="credit", noun="credit scheme", prefixes=("credit-scheme", "credit")),
    Kind(name="starts", noun="start scheme", prefixes=("start-scheme", "starts", "start")),
    Kind(name="trainer", prefixes=("trainer", "train")),
    Kind(name="objective", prefixes=("objective", "loss"), test_needs=("torch>=2.6",)),
    Kind(name="observer", prefixes=("observer", "observe")),
    Kind(name="executor", prefixes=("executor",)),
    Kind(name="launch", noun="launcher", prefixes=("launcher", "launch")),
    Kind(name="command", prefixes=("command",)),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}

COMMAND = KINDS["command"]
"""The only kind that is not a component: `ale --help` lists it, not `ale plugins`."""


def kind_named(name: str) -> Kind:
    """The kind with a name as in configs (``credit``) or in prose (``credit-scheme``).

    Raises:
        ValueError: there is none. The message lists all that can be written, with the nearest name
            if one is near.
    """
    names = {**KINDS, **{kind.words.replace(" ", "-"): kind for kind in _ALL}}
    if name not in names:
        meant = [f"did you mean '{kind.name}'?" for kind in _ALL if name in kind.prefixes]
        hint = meant[0] if meant else nearest(name, (*names, *WORKSPACES))
        expected = ", ".join([*KINDS, *WORKSPACES])
        message = f"'{name}' is nothing that can be written: expected one of {expected}"
        raise ValueError(f"{message}; {hint}" if hint else message)
    return names[name]
