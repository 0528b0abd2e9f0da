"""Objectives: the losses of trainers. All tensors are torch's, which is not imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from pathlib import Path


@frozen(kw_only=True, eq=False)
class Tokens:
    """Values of the T trained tokens of a micro-batch, each (T,), without a gradient.

    The tokens of all its trajectories stand one behind the other. Log-probabilities are in nats.
    """

    weight: Any
    """Credit over Z, the trainer's `Objective.normaliser` of the whole update; 0 for tokens that
    were forced, and positive to make a token more likely."""
    imitation: Any
    """b: weight of maximum likelihood over its own Z; 0 but for demonstrations."""
    behaviour_logp: Any
    """log mu: of the policy that sampled, as the sampler stated it."""
    sampled: Any
    """Was the token sampled? Booleans; the others were forced."""
    positive: Any
    """Is the sum of its trajectory's rewards above 0? Booleans."""
    chunk_id: Any
    """Number of its chunk within the micro-batch; a whole chunk is in one."""
    trajectory_id: Any
    """Number of its trajectory; a whole trajectory is in one micro-batch."""
    regularised: Any = None
    """1 / Z for every sampled token, with credit or without. All are 0 for an objective that needs
    neither reference nor entropy; None is the same."""
    reference_logp: Any = None
    """log pi_ref; None unless the objective needs a reference."""


@frozen(kw_only=True, eq=False)
class Terms:
    """A loss and what it is made of, for the metrics of a step.

    All but `loss` are without a gradient; what an objective leaves out is not measured.
    """

    loss: Any
    """A number, (), with its gradient. The sum over the micro-batches of an update is the loss of
    the update: divide by nothing that depends on the micro-batch."""
    reinforcement: Any = None
    """The part of the loss that credit gives, ()."""
    imitation: Any = None
    """The part that imitation gives, ()."""
    kl: Any = None
    """The part that the reference gives, ()."""
    entropy: Any = None
    """The part that the entropy gives, ()."""
    ratio: Any = None
    """pi_theta / pi_old as the objective takes it, (T,)."""
    mismatch: Any = None
    """pi_old / mu, (T,)."""
    unmasked: Any = None
    """m: does the token count? Booleans, (T,)."""
    coefficient: Any = None
    """c in front of weight and grad log pi, before mask and correction, (T,)."""
    limited: Any = None
    """Did a clip, clamp or bound make c differ from the ratio? Booleans, (T,)."""
    correction: Any = None
    """f: factor on the weight that corrects for pi_old / mu, (T,)."""
    corrected: Any = None
    """Is f not pi_old / mu itself: capped or dropped? Booleans, (T,)."""


@runtime_checkable
class Objective(Protocol):
    """A loss over tokens. A class that inherits from this one has the attributes' defaults."""

    needs_reference: bool = False
    """Does it need `Tokens.reference_logp`? This keeps a second model in memory."""
    reference_model: Path | None = None
    """Folder of the reference model; None: the policy at the start of the run."""
    needs_entropy: bool = False
    """Does it need the entropy with its gradient?"""
    normaliser: str = "trajectories"
    """The unit of Z, over a whole update: ``trajectories``, ``tokens``, ``kept-tokens`` (of
    trajectories that were not skipped), or ``trajectory-tokens`` (trajectories times the tokens of
    each)."""

    def evaluate(self, tokens: Tokens, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        """The loss of one micro-batch.

        It includes imitation, ``-(tokens.imitation * logp).sum()``. A token whose weights are 0 has
        no gradient, and may have any ratio, also an infinite one. For plain policy gradients the
        gradient of the loss with respect to `logp` is ``-weight`` where the three
        log-probabilities are equal.

        Args:
            tokens: what is given for each token.
            logp: log pi_theta, (T,), nats, with its gradient.
            old_logp: log pi_old, (T,), nats: of the policy before the step, or as the trainer's
                option ``old_policy`` says.
            entropy: of the distribution before each token, (T,), nats, with its gradient; None
                unless the objective needs it.
        """
        ...
