"""Options of the model and of the trainer ``tinker``."""

from typing import Any, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc, ge, gt, le, optional
from ale.strict import NameOrPath

Calls = Literal["hermes", "xml", "llama3", "mistral", "harmony", "glm", "deepseek", "gemma"]
Loss = Literal["importance_sampling", "ppo", "cross_entropy"]
CLIP = 0.2


@frozen(kw_only=True)
class ModelOptions:
    """An open model on Tinker, whose adapter a trainer can train there."""

    model: str = field(metadata=doc("Name of the base model at the service."))
    tokenizer: NameOrPath | None = field(
        default=None,
        metadata=doc("Name or folder of its tokenizer; null: the name of the model."),
    )
    chat_template: NameOrPath | None = field(
        default=None,
        metadata=doc(
            "chatml, trl/NAME for a template of the package trl, or a Jinja file, instead of the "
            "tokenizer's own template."
        ),
    )
    calls: Calls = field(default="hermes", metadata=doc("How the model writes tool calls."))
    turns: Literal["as-rendered", "as-sampled"] = field(
        default="as-rendered",
        metadata=doc(
            "as-rendered: refuse a template that writes earlier turns differently from how they "
            "were sampled; as-sampled: accept any, and leave earlier turns as they were sampled."
        ),
    )
    temperature: float = field(
        default=1.0, validator=ge(0), metadata=doc("Sampling temperature; a trainer needs 1.")
    )
    top_p: float = field(
        default=1.0,
        validator=[gt(0), le(1)],
        metadata=doc("Nucleus sampling; a trainer needs 1."),
    )
    max_tokens: int = field(
        default=2048, validator=ge(1), metadata=doc("Maximum tokens of one answer.")
    )
    context: int = field(
        default=32768,
        validator=ge(16),
        metadata=doc("Maximum tokens of prompt and answer: at most the service's own limit."),
    )
    timeout_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds after which an answer is given up.", changeable=True),
    )
    api_key_env: str = field(
        default="TINKER_API_KEY", metadata=doc("Environment variable with the key.")
    )
    base_url: str | None = field(
        default=None,
        metadata=doc("URL of the service; null: the SDK's, or TINKER_BASE_URL.", changeable=True),
    )


@frozen(kw_only=True)
class TrainerOptions:
    """Trains an adapter over the model that samples, on Tinker."""

    loss: Loss | None = field(
        default=None,
        metadata=doc("The loss that the service computes; null: importance_sampling."),
    )
    clip_low: float | None = field(
        default=None,
        validator=optional([gt(0), le(1)]),
        metadata=doc(f"loss: ppo clips the ratio below 1 - clip_low; null: {CLIP}."),
    )
    clip_high: float | None = field(
        default=None,
        validator=optional(gt(0)),
        metadata=doc(f"loss: ppo clips the ratio above 1 + clip_high; null: {CLIP}."),
    )
    objective: Any = field(
        default=None,
        metadata=doc(
            "Instead of loss, an installed objective, computed here: a name, or {type: NAME, and "
            "its options}. A second forward pass each time.",
            component="objective",
            named_by="preset",
        ),
    )
    lr: float = field(default=1e-4, validator=gt(0), metadata=doc("AdamW's learning rate."))
    max_grad_norm: float = field(
        default=1.0, validator=ge(0), metadata=doc("Clips the norm of the gradient; 0 does not.")
    )
    epochs: int = field(default=1, validator=ge(1), metadata=doc("Updates on each batch."))
    rank: int = field(default=32, validator=ge(1), metadata=doc("Rank of the LoRA adapter."))
    timeout_s: float = field(
        default=3600.0,
        validator=gt(0),
        metadata=doc(
            "Seconds after which the service's answer to one request is given up, which ends the "
            "run.",
            changeable=True,
        ),
    )

    @objective.validator
    def _check_one_loss(self, attribute: "Attribute[Any]", value: Any) -> None:
        if value is not None and self.loss is not None:
            raise ValueError("give 'loss' or 'objective', not both")
        if self.loss != "ppo" and (self.clip_low, self.clip_high) != (None, None):
            raise ValueError("'clip_low' and 'clip_high' are of loss: ppo")
