"""Options of the trainers inside a run."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, optional
from ale_trainer_trl.learning.options import DpoLossOptions, GrpoLossOptions
from ale_training.lora import LoraOptions


@frozen(kw_only=True)
class LearnOptions:
    """Options of both trainers."""

    learning_rate: float = field(
        default=1e-5, validator=gt(0.0), metadata=doc("Learning rate of AdamW.")
    )
    lora: LoraOptions | None = field(
        factory=LoraOptions, metadata=doc("Adapters of PEFT; null trains every weight.")
    )
    max_grad_norm: float = field(
        default=1.0, validator=gt(0.0), metadata=doc("Gradients are clipped to this norm.")
    )
    max_length: int = field(
        default=4096,
        validator=ge(8),
        metadata=doc("Maximum tokens of an episode; longer ones are left out and counted."),
    )


@frozen(kw_only=True)
class DpoOptions(DpoLossOptions, LearnOptions):
    """Preferences between the episodes of a step (DPO, arXiv:2305.18290), trained by TRL."""

    pairs: Literal["same-prompt", "same-trajectory"] = field(
        default="same-prompt",
        metadata=doc(
            "Best and worst episode of a task; or highest and lowest rewarded chunk of an "
            "episode, which compares answers to different contexts."
        ),
    )
    pairs_per_group: int = field(
        default=1,
        validator=ge(1),
        metadata=doc("same-prompt: also the second best and second worst, and so on."),
    )
    beta: float = field(
        default=0.1,
        validator=gt(0.0),
        metadata=doc("Strength of the KL constraint to the policy before the step."),
    )
    epochs: int = field(
        default=1, validator=ge(1), metadata=doc("Passes over the pairs of a step.")
    )
    batch_size: int = field(default=4, validator=ge(1), metadata=doc("Pairs per update."))


@frozen(kw_only=True)
class GrpoOptions(GrpoLossOptions, LearnOptions):
    """Group-relative policy optimisation (arXiv:2402.03300), trained by TRL."""

    advantage: Literal["group", "credit"] = field(
        default="group",
        metadata=doc(
            "'group', as in TRL: the episode's reward against its group's, for all its tokens; "
            "'credit': the weight that the config's credit scheme gave each chunk."
        ),
    )
    temperature: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc(
            "Logits are divided by it; null is `llm.temperature`, and any other value is refused."
        ),
    )
    iterations: int = field(
        default=1, validator=ge(1), metadata=doc("Updates on the episodes of a step.")
    )
    batch_size: int = field(
        default=8,
        validator=ge(1),
        metadata=doc(
            "Maximum number of episodes in one forward and backward pass; a step is one update."
        ),
    )
