"""What a kind of step is."""

from collections.abc import Callable, Mapping

from attrs import field, frozen

from ale_tasks_shell.scene import Scene

Effect = Callable[[Scene, str], Mapping[str, object]]


@frozen(kw_only=True)
class Kind:
    """One kind of step: what the goal says, what the reference solution types, what it changes."""

    name: str
    goal: str
    """Sentence with places for names, such as ``{a}``."""
    commands: tuple[str, ...]
    """Commands with the same places; the agent sends each in a turn of its own."""
    becomes: Mapping[str, tuple[str, ...]]
    """Type of what the step works on (`contents`): types of what the next step may work on.

    The key "" stands for nothing: a first step that needs none, or one after which none is left.
    """
    effect: Effect = field(repr=False)
    """Plays the step on a scene, to end with the given type; the names for the places."""
    reads: bool = False
    """Leaves what it works on as it is, so that it may be a link, and makes something new."""
    spares: bool = False
    """Leaves what it works on as it is, and nothing needs that afterwards."""
    deletes_source: bool = False
    """After a first step, it needs what that one has spared."""
