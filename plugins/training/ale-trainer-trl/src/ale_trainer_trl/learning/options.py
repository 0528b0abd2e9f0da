"""Options of trainings on data sets."""

from pathlib import Path
from typing import ClassVar, Literal

from attrs import field, frozen

from ale.plugin import doc, ge, gt, le, lt, optional
from ale_training.lora import LoraOptions

Quantization = Literal["4bit", "8bit"]
Dtype = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
DpoLoss = Literal["sigmoid", "hinge", "ipo"]
GrpoLoss = Literal["dapo", "grpo", "bnpo", "cispo"]
ScaleRewards = Literal["group", "batch", "none"]


@frozen(kw_only=True, slots=False)  # a second base may have no slots
class DpoLossOptions:
    """The loss of DPO."""

    loss: DpoLoss = field(default="sigmoid", metadata=doc("TRL's `loss_type`."))
    label_smoothing: float = field(
        default=0.0,
        validator=[ge(0.0), lt(0.5)],
        metadata=doc("Probability that a pair is labelled the wrong way round."),
    )


@frozen(kw_only=True, slots=False)
class GrpoLossOptions:
    """The loss of GRPO."""

    loss: GrpoLoss = field(default="dapo", metadata=doc("TRL's `loss_type`."))
    scale_rewards: ScaleRewards = field(
        default="group",
        metadata=doc(
            "Rewards by whose standard deviation advantages are divided; none: not divided."
        ),
    )
    epsilon: float = field(
        default=0.2,
        validator=gt(0.0),
        metadata=doc("The importance ratio is clipped to at least 1 - epsilon."),
    )
    epsilon_high: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc("The importance ratio is clipped to at most 1 + this; null is epsilon."),
    )


@frozen(kw_only=True)
class Training:
    """Options of every training on a data set."""

    method: ClassVar[str]
    model_name_or_path: str = field(
        metadata=doc("Folder or name of a causal model of transformers.")
    )
    dataset_path: Path = field(
        metadata=doc("File of rows (.jsonl, .parquet) or a folder of Hugging Face datasets.")
    )
    output_dir: Path = field(
        metadata=doc("Where adapter or model, checkpoints, record and model card go.")
    )
    lora: LoraOptions | None = field(
        factory=LoraOptions, metadata=doc("Adapters of PEFT; null trains every weight.")
    )
    merge: bool = field(
        default=False,
        metadata=doc("Also write the model with its adapter merged into it, to output_dir/merged."),
    )
    quantization: Quantization | None = field(
        default=None,
        metadata=doc("Load the weights in 4 or 8 bits under the adapters; needs a CUDA GPU."),
    )
    dtype: Dtype = field(
        default="auto",
        metadata=doc("Data type of the weights; auto is bfloat16 on a GPU and float32 elsewhere."),
    )
    device: Device = field(
        default="auto", metadata=doc("auto: CUDA if available, otherwise the CPU.")
    )
    gradient_checkpointing: bool = field(
        default=False, metadata=doc("Compute activations again in the backward pass.")
    )
    learning_rate: float = field(
        default=1e-5, validator=gt(0.0), metadata=doc("Learning rate of AdamW.")
    )
    schedule: Literal["constant", "linear", "cosine"] = field(
        default="linear", metadata=doc("How the learning rate falls after the warmup.")
    )
    warmup_steps: int = field(
        default=0, validator=ge(0), metadata=doc("Updates in which the learning rate rises.")
    )
    max_grad_norm: float = field(
        default=1.0, validator=gt(0.0), metadata=doc("Gradients are clipped to this norm.")
    )
    epochs: float = field(default=1.0, validator=gt(0.0), metadata=doc("Passes over the data set."))
    max_steps: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("End after this many updates, whatever `epochs` says."),
    )
    batch_size: int = field(
        default=4, validator=ge(1), metadata=doc("Rows in one forward and backward pass.")
    )
    gradient_accumulation: int = field(
        default=1, validator=ge(1), metadata=doc("Passes per update.")
    )
    save_steps: int = field(
        default=50, validator=ge(1), metadata=doc("Updates between two checkpoints.")
    )
    keep_checkpoints: int = field(
        default=2,
        validator=ge(1),
        metadata=doc("Number of newest checkpoints to keep; older ones are removed."),
    )
    log_steps: int = field(
        default=10, validator=ge(1), metadata=doc("Updates over which metrics are averaged.")
    )
    seed: int = field(
        default=0,
        validator=[ge(0), lt(1 << 32)],
        metadata=doc("Seed of the adapters, the order of rows and dropout."),
    )
    resume: Literal["auto", "never"] = field(
        default="auto",
        metadata=doc("auto resumes from the last checkpoint in output_dir, if there is one."),
    )


@frozen(kw_only=True)
class DpoTraining(DpoLossOptions, Training):
    """Direct preference optimisation (arXiv:2305.18290) on rows of prompt, chosen, rejected."""

    method = "dpo"
    beta: float = field(
        default=0.1,
        validator=gt(0.0),
        metadata=doc("Strength of the KL constraint to the reference, the initial model."),
    )
    max_length: int = field(
        default=8192,
        validator=ge(8),
        metadata=doc(
            "Tokens of prompt and answer; longer pairs are left out and counted, as are those "
            "beyond the model's context."
        ),
    )
    evaluation_fraction: float = field(
        default=0.0,
        validator=[ge(0.0), le(0.5)],
        metadata=doc("Share of the pairs that is held out and measured, drawn by the seed."),
    )


@frozen(kw_only=True)
class GrpoTraining(GrpoLossOptions, Training):
    """Group-relative policy optimisation (arXiv:2402.03300) on prompts with a reward function."""

    method = "grpo"
    reward: str = field(
        metadata=doc(
            "Reward function as module:function or file.py:function, called as TRL does: with "
            "prompts, completions and the columns of the rows; gives one number each."
        )
    )
    generations: int = field(
        default=8, validator=ge(2), metadata=doc("Completions per prompt: a group.")
    )
    max_completion_length: int = field(
        default=256, validator=ge(1), metadata=doc("Tokens of a completion.")
    )
    temperature: float = field(
        default=1.0, validator=gt(0.0), metadata=doc("Sampling temperature.")
    )
    beta: float = field(
        default=0.0, validator=ge(0.0), metadata=doc("Weight of the KL term; 0: no KL term.")
    )
    iterations: int = field(
        default=1, validator=ge(1), metadata=doc("Updates per batch of completions.")
    )
