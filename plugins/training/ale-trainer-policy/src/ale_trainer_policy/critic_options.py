"""Options of the critic."""

from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc, gt, optional


@frozen(kw_only=True)
class CriticOptions:
    """V(s), the expected return from a state on; for ``credit: {type: gae}``."""

    type: Literal["head", "model"] = field(
        metadata=doc(
            "'head': a linear layer on the policy's last hidden states; 'model': a linear layer on "
            "those of a separate model."
        )
    )
    gradient: Literal["head", "policy"] = field(
        default="head",
        metadata=doc(
            "For type 'head', how far the value loss reaches: the linear 'head' alone, or the "
            "'policy', whose layers it then trains too."
        ),
    )
    model: Path | None = field(
        default=None,
        metadata=doc("Folder of the critic's model; null: a copy of the initial policy."),
    )
    coefficient: float = field(
        default=0.5, validator=gt(0.0), metadata=doc("Factor on the value loss.")
    )
    value_clip: float | None = field(
        default=0.2,
        validator=optional(gt(0.0)),
        metadata=doc(
            "A value that differs by more than this from the value before the step has no "
            "gradient; null: no limit."
        ),
    )
    lr: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc(
            "Learning rate of the critic's own parameters; null: 1e-3 for a head and the trainer's "
            "for a model."
        ),
    )
    advantages: Literal["plain", "whitened"] = field(
        default="plain",
        metadata=doc("'whitened': minus the mean over the step's tokens, divided by their std."),
    )

    @gradient.validator
    def _check_gradient(self, attribute: "Attribute[Any]", value: str) -> None:
        if value == "policy" and self.type == "model":
            raise ValueError("'gradient: policy' is of a head; a model has its own layers")

    @model.validator
    def _check_model(self, attribute: "Attribute[Any]", value: Path | None) -> None:
        if value is not None and self.type == "head":
            raise ValueError("'model' is of type: model; a head is on the policy's layers")

    def rate(self, lr: float) -> float:
        """The critic's learning rate, with its default resolved.

        Args:
            lr: the trainer's learning rate.
        """
        if self.lr is not None:
            return self.lr
        return 1e-3 if self.type == "head" else lr
