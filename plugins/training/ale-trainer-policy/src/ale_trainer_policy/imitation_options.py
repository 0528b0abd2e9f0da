"""Options of learning from forced completions."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, le, optional


@frozen(kw_only=True)
class ImitationOptions:
    """What is learned from forced completions (arXiv:2512.24873, Eq. 10)."""

    when: Literal["off", "fallback", "always"] = field(
        default="fallback",
        metadata=doc("'fallback': only in groups none of whose sampled episodes succeeded."),
    )
    weight: float = field(default=0.1, validator=ge(0.0), metadata=doc("The weight, lambda_IL."))
    gamma: float = field(
        default=1.0,
        validator=[gt(0.0), le(1.0)],
        metadata=doc(
            "Discount per turn: gamma^(K* - k), K* the expert's number of turns; 1 is none."
        ),
    )
    epochs: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Epochs over a batch in which something is imitated; null: as for others."),
    )
    lr: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc("Learning rate for such a batch; null: the trainer's."),
    )
    fresh_moments: bool = field(
        default=False,
        metadata=doc(
            "Drop AdamW's moments before the first batch in which nothing is imitated any more."
        ),
    )
