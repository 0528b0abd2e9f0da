"""Options of the chunkers that have any."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc


@frozen(kw_only=True)
class InteractionOptions:
    """One chunk per interaction with the environment."""

    turns_without_calls: Literal["join", "own"] = field(
        default="join",
        metadata=doc(
            "A turn that calls no tool: 'join' it to the next turn that does, or make it a chunk "
            "of its 'own'."
        ),
    )
