"""A kind of step."""

from collections.abc import Callable, Mapping

from attrs import field, frozen

from ale_tasks_shell.scene import Scene

Effect = Callable[[Scene, str], Mapping[str, object]]


@frozen(kw_only=True)
class Kind:
    """One kind of step: its sentence of the goal, its commands and its effect."""

    name: str
    goal: str
    """Sentence with placeholders for names, such as ``{a}``."""
    commands: tuple[str, ...]
    """Commands with the same placeholders; the agent sends each in a turn of its own."""
    becomes: Mapping[str, tuple[str, ...]]
    """Type of the input (`contents`): possible types of the output, the input of the next step.

    "" is no input, for a first step, or no output, after a last one.
    """
    effect: Effect = field(repr=False)
    """Applies the step with this type of output; returns the names for the placeholders."""
    reads: bool = False
    """Leaves its input unchanged, so that it may be a link, and makes a new file."""
    spares: bool = False
    """Leaves its input unchanged, and no later step needs it."""
    deletes_source: bool = False
    """After a first step, it needs the input that this one has spared."""
