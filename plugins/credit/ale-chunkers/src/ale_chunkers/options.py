"""Options of the chunkers that have options."""

from typing import Literal

from attrs import field, frozen, validators

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


@frozen(kw_only=True)
class AttemptOptions:
    """One chunk per attempt at the task."""

    tool: str = field(
        default="attempt",
        validator=validators.min_len(1),
        metadata=doc(
            "Tool whose observation judges an attempt; 'attempt' is the tool of the agent "
            "code-attempts."
        ),
    )


@frozen(kw_only=True)
class PhaseOptions:
    """One chunk per phase of the work."""

    tools: tuple[str, ...] = field(
        default=("plan", "patch", "test", "repair"),
        validator=validators.min_len(1),
        metadata=doc(
            "Tools whose observation ends a phase; the default is those of the agent "
            "plan-patch-test."
        ),
    )
