"""What a checkpoint holds besides its tensors."""

from typing import Any

import msgspec

from ale_training import checkpoint


class State(checkpoint.State):
    """The counters of a trainer of this package."""

    bad_steps: int
    generator: dict[str, Any]
    """State of the generator that shuffles minibatches."""
    kept_versions: list[int]
    shards: dict[str, str] = msgspec.field(default_factory=dict)
    """SHA-256 of each file of the shards by name; empty if an earlier version wrote them."""
    fresh_moments_next: bool = False
    """The value in the last step's `Schedule`."""
