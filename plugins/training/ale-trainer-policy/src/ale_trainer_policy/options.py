"""Options of the trainers, and the presets: data, from which an `ObjectiveParts` is resolved."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

from attrs import Attribute, asdict, evolve, field, frozen, validators

from ale.plugin import doc, ge, gt, le, optional
from ale.protocols import Objective, Terms, Tokens
from ale.strict import Former
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.unused_parts import check_parts
from ale_training.lora import LoraOptions

Preset = Literal[
    "ipa",
    "ipa-baseline",
    "topr",
    "token-tis",
    "grpo",
    "dr-grpo",
    "gspo",
    "cispo",
    "dapo",
    "ppo",
    "reinforce",
]
Level = Literal["token", "chunk", "trajectory"]
Packing = Literal["tree", "packed", "padded"]
Aggregation = Literal["geometric-mean", "product"]
UpdateName = Literal["none", "ratio", "clamp", "clip", "bound"]
OldPolicyName = Literal["recompute", "rollout_version", "rollout_engine"]
NormaliserName = Literal["trajectories", "constant", "tokens", "kept-tokens", "trajectory-tokens"]
CorrectionName = Literal["none", "truncate", "mask", "reject"]


@frozen(kw_only=True)
class CorrectionOptions:
    """How pi_old / mu_old of a token, chunk or trajectory changes the weight of its tokens."""

    method: CorrectionName = field(
        metadata=doc(
            "'truncate' multiplies by the ratio, at most by the cap; 'mask' drops what is outside "
            "floor and cap; 'reject' drops the whole trajectory of what is outside."
        )
    )
    level: Level = field(default="token", metadata=doc("Unit over which the ratio is aggregated."))
    aggregation: Aggregation = field(
        default="product", metadata=doc("How it is aggregated over the tokens.")
    )
    cap: float = field(default=2.0, validator=gt(0.0), metadata=doc("Upper bound of the ratio."))
    floor: float | None = field(
        default=None,
        validator=optional(ge(0.0)),
        metadata=doc("Lower bound of 'mask' and 'reject'; 1 / cap if null, and 0 for none."),
    )

    @floor.validator
    def _check_floor(self, attribute: "Attribute[Any]", value: float | None) -> None:
        if self.method not in ("mask", "reject"):
            if value is not None:
                raise ValueError(f"'floor' is of mask and reject; {self.method} has none")
        elif self.lowest > self.cap:
            source = " (1 / cap)" if value is None else ""
            raise ValueError(f"'floor' is {self.lowest:g}{source}, above the cap of {self.cap:g}")

    @property
    def lowest(self) -> float:
        """The floor, with its default resolved."""
        return 1.0 / self.cap if self.floor is None else self.floor


@frozen(kw_only=True)
class HintOptions:
    """A text that pi_ref reads and pi_theta does not; an episode without one has no KL term."""

    source: Literal["feedback", "file"] = field(
        metadata=doc(
            "The longest text of the feedback stored with the episode, of at least 10 characters; "
            "or its task's text in a file."
        )
    )
    file: Path | None = field(
        default=None,
        metadata=doc(
            "YAML or JSON, for source: file: a mapping from task ids to texts, such as solutions; "
            "`*` is for all others."
        ),
    )

    @file.validator
    def _check_file(self, attribute: "Attribute[Any]", value: Path | None) -> None:
        if (self.source == "file") != (value is not None):
            raise ValueError("'file' and source: file need each other")


@frozen(kw_only=True)
class KlOptions:
    """KL(pi_theta || pi_ref) in the loss, estimated token by token."""

    coefficient: float = field(validator=gt(0.0), metadata=doc("Factor beta on the KL term."))
    estimator: Literal["k1", "k2", "k3"] = field(
        default="k3",
        metadata=doc(
            "With x = log pi_ref - log pi_theta: k1 = -x, k2 = x^2 / 2, k3 = exp(x) - 1 - x. "
            "k2 has the gradient of this KL, k3 that of KL(pi_ref || pi_theta), k1 none."
        ),
    )
    to: Literal["start", "reference", "server"] = field(
        default="start",
        metadata=doc(
            "pi_ref: the policy at the start of the run, another model in memory, or one on a "
            "server."
        ),
    )
    model: Path | None = field(
        default=None, metadata=doc("Folder of the model for to: reference; of the same vocabulary.")
    )

    server: str | None = field(
        default=None,
        validator=optional(validators.matches_re(r"https?://[^\s/]+.*")),
        metadata=doc(
            "URL for to: server, of the same vocabulary: `ale serve` with a policy, or vLLM or "
            "SGLang behind `ale server start`.",
            changeable=True,
        ),
    )
    api_key_env: str | None = field(
        default=None,
        metadata=doc("Environment variable with that server's key.", changeable=True),
    )
    hint: HintOptions | None = field(
        default=None,
        metadata=doc(
            "{source, file}: pi_ref also reads a hint at the end of the user's message, and "
            "teaches what it changes."
        ),
    )

    @model.validator
    def _check_model(self, attribute: "Attribute[Any]", value: Path | None) -> None:
        if (self.to == "reference") != (value is not None):
            raise ValueError("'model' and to: reference need each other")

    @server.validator
    def _check_server(self, attribute: "Attribute[Any]", value: str | None) -> None:
        if (self.to == "server") != (value is not None):
            raise ValueError("'server' and to: server need each other")

    @api_key_env.validator
    def _check_api_key_env(self, attribute: "Attribute[Any]", value: str | None) -> None:
        if value is not None and self.server is None:
            raise ValueError("'api_key_env' needs to: server")


@frozen(kw_only=True)
class ObjectiveParts(Objective):
    """An objective: one name or number for each of its parts. The defaults are IPA's."""

    ratio: Level = "chunk"
    aggregation: Aggregation = "geometric-mean"
    positive: UpdateName = "none"
    negative: UpdateName = "clamp"
    clip_low: float = 0.2
    clip_high: float = 0.2
    sign: Literal["weight", "trajectory"] = "weight"
    mask: Literal["none", "token", "chunk", "trajectory"] = "chunk"
    mask_threshold: float | None = 2.0
    mask_floor: float | None = None
    normaliser: NormaliserName = "trajectories"
    normaliser_constant: float = 1.0
    correction: CorrectionOptions = CorrectionOptions(method="none")
    kl: KlOptions | None = None
    entropy: float = 0.0

    @property
    def needs_reference(self) -> bool:  # type: ignore[override]
        """Does the loss have a KL term?"""
        return self.kl is not None

    @property
    def reference_model(self) -> Path | None:  # type: ignore[override]
        """Folder of pi_ref; None for the policy at the start."""
        return None if self.kl is None else self.kl.model

    @property
    def needs_entropy(self) -> bool:  # type: ignore[override]
        """Does the loss have an entropy term?"""
        return self.entropy != 0

    def evaluate(self, tokens: Tokens, logp: Any, old_logp: Any, entropy: Any) -> Terms:
        """The loss of a micro-batch: see `ale_trainer_policy.objective`."""
        # Imported when a loss is computed, with torch, as what builds a component is.
        evaluate = import_module("ale_trainer_policy.objective").evaluate
        terms: Terms = evaluate(self, logp, old_logp, tokens, entropy)
        return terms


_IPA = ObjectiveParts()
_PPO = ObjectiveParts(ratio="token", positive="clip", negative="clip", mask="none")
PRESETS: Mapping[str, ObjectiveParts] = {
    "ipa": _IPA,
    "ipa-baseline": evolve(_IPA, ratio="trajectory", mask="token"),
    "topr": evolve(_IPA, ratio="trajectory", aggregation="product", mask="none"),
    # Token-level truncated importance sampling.
    "token-tis": evolve(_IPA, ratio="token", mask="none"),
    "reinforce": evolve(_IPA, negative="none", mask="none"),
    # The paper's KL, which most of its successors leave out.
    "grpo": evolve(_PPO, normaliser="trajectory-tokens", kl=KlOptions(coefficient=0.04)),
    "dr-grpo": evolve(_PPO, normaliser="constant", normaliser_constant=1024.0),
    "dapo": evolve(_PPO, clip_high=0.28, normaliser="kept-tokens"),
    # For a critic and credit gae; the paper's mean over time steps.
    "ppo": evolve(_PPO, normaliser="tokens"),
    "gspo": evolve(
        _PPO,
        ratio="trajectory",
        clip_low=3e-4,
        clip_high=4e-4,
        normaliser="trajectory-tokens",
    ),
    # No lower bound, an upper one of 5: the values of arXiv:2510.13786; the paper tunes the upper.
    "cispo": evolve(
        _PPO,
        positive="bound",
        negative="bound",
        clip_low=1.0,
        clip_high=4.0,
        normaliser="tokens",
    ),
}


@frozen(kw_only=True)
class ObjectiveOptions:
    """A preset with some of its parts replaced; null keeps the preset's."""

    preset: Preset = field(metadata=doc("A preset's name, for the parts that are not given."))
    ratio: Level | None = field(
        default=None, metadata=doc("Unit over which pi_theta / pi_old is aggregated.")
    )
    aggregation: Aggregation | None = field(
        default=None, metadata=doc("How it is aggregated over the tokens.")
    )
    positive: UpdateName | None = field(
        default=None, metadata=doc("Coefficient, from the ratio r, where the sign is positive.")
    )
    negative: UpdateName | None = field(
        default=None, metadata=doc("Coefficient, from the ratio r, where the sign is not positive.")
    )
    clip_low: float | None = field(
        default=None,
        validator=optional([ge(0.0), le(1.0)]),
        metadata=doc("'clip' and 'bound' go down to 1 - clip_low."),
    )
    clip_high: float | None = field(
        default=None,
        validator=optional(ge(0.0)),
        metadata=doc("'clip' and 'bound' go up to 1 + clip_high."),
    )
    sign: Literal["weight", "trajectory"] | None = field(
        default=None,
        metadata=doc("Sign of the token's own weight, or of the sum of its trajectory's rewards."),
    )
    mask: Literal["none", "token", "chunk", "trajectory"] | None = field(
        default=None,
        metadata=doc("Unit dropped as a whole where pi_old and mu_old differ (Eq. 8)."),
    )
    mask_threshold: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc("H: a unit is dropped where pi_old / mu_old is above it."),
    )
    mask_floor: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc("The lower bound: a unit is dropped where pi_old / mu_old is below it."),
    )
    normaliser: NormaliserName | None = field(
        default=None, metadata=doc("What the sum over tokens is divided by.")
    )
    normaliser_constant: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc("Tokens per trajectory, for the normaliser 'constant'."),
    )
    kl: Literal["off"] | KlOptions | None = field(
        default=None,
        metadata=doc(
            "A KL term in the loss: off, or {coefficient, estimator, to, model, server, hint}."
        ),
    )
    entropy: float | None = field(
        default=None,
        validator=optional(ge(0.0)),
        metadata=doc("Factor on the entropy, which is maximised."),
    )

    @entropy.validator
    def _check_parts(self, attribute: "Attribute[Any]", value: float | None) -> None:
        check_parts(self, resolve_objective(self))


def resolve_correction(
    chosen: CorrectionName | CorrectionOptions | None,
) -> CorrectionOptions:
    """The correction with this method name; null means none."""
    if isinstance(chosen, CorrectionOptions):
        return chosen
    return CorrectionOptions(method=chosen or "none")


def resolve_objective(options: "str | ObjectiveOptions") -> ObjectiveParts:
    """The parts of a named preset, or of a preset with parts replaced."""
    if isinstance(options, str):
        return PRESETS[options]
    given = asdict(options, recurse=False, filter=lambda _, value: value is not None)
    del given["preset"]
    if given.get("kl") == "off":
        given["kl"] = None
    return evolve(PRESETS[options.preset], **given)


def chosen_objective(chosen: "str | ObjectiveOptions | Objective") -> Objective:
    """The objective of `PolicyOptions.objective`: a preset's name, a preset with parts replaced,
    or an objective itself.
    """
    return resolve_objective(chosen) if isinstance(chosen, str | ObjectiveOptions) else chosen


_DECAY_TO = 0.1


@frozen(kw_only=True)
class LearnOptions:
    """Options that every trainer of this package has."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "bad_batches": Former(None),
    }

    lr: float = field(default=1e-5, validator=gt(0.0), metadata=doc("AdamW's learning rate."))
    betas: tuple[float, float] = field(default=(0.9, 0.95), metadata=doc("AdamW's."))
    eps: float = field(default=1e-8, validator=gt(0.0), metadata=doc("AdamW's."))
    weight_decay: float = field(default=0.0, validator=ge(0.0), metadata=doc("AdamW's."))
    warmup_updates: int = field(
        default=0, validator=ge(0), metadata=doc("Updates over which the rate grows from 0.")
    )
    decay_updates: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Updates over which the rate falls linearly; null: it never falls."),
    )
    stable_updates: int = field(
        default=0,
        validator=ge(0),
        metadata=doc("Updates between warm-up and decay in which the rate stays."),
    )
    decay_to: float = field(
        default=_DECAY_TO,
        validator=[ge(0.0), le(1.0)],
        metadata=doc("Share of the rate that is left after the decay."),
    )
    max_grad_norm: float | None = field(
        default=1.0,
        validator=optional(gt(0.0)),
        metadata=doc("The gradient is scaled down to this norm; null: not scaled."),
    )
    epochs: int = field(
        default=1, validator=ge(1), metadata=doc("Number of passes over each batch.")
    )
    minibatches: int = field(
        default=1, validator=ge(1), metadata=doc("Updates per epoch, over equal shares of a batch.")
    )
    max_tokens_per_microbatch: int = field(
        default=16384,
        validator=ge(1),
        metadata=doc("Bounds memory, never changes a gradient; a longer trajectory goes alone."),
    )
    packing: Packing = field(
        default="tree",
        metadata=doc(
            "'tree' computes shared prefixes once; 'packed' puts one row per context side by side; "
            "'padded' fills the rows up."
        ),
    )
    precision: Literal["fp32", "bf16"] = field(
        default="fp32",
        metadata=doc("Precision of matrix products; sums, weights and log-probs stay in fp32."),
    )
    activations: Literal["keep", "recompute"] = field(
        default="keep",
        metadata=doc("'recompute' each layer in the backward pass: less memory, more time."),
    )
    logits_mb: float | None = field(
        default=256.0,
        validator=optional(gt(0.0)),
        metadata=doc("MiB of fp32 logits held at once; others are recomputed. null holds all."),
    )
    sync: Literal["same", "copy"] = field(
        default="same",
        metadata=doc("Train the model that samples, or a 'copy', handing over its weights."),
    )
    lora: LoraOptions | None = field(
        default=None, metadata=doc("Adapters {r, alpha, dropout, target}; all weights if null.")
    )
    temperature: float | None = field(
        default=None,
        validator=optional(gt(0.0)),
        metadata=doc("Logits are divided by it; the sampler's own temperature if null."),
    )
    kl_to_start: Literal["off", "metric"] = field(
        default="off",
        metadata=doc("'metric' keeps the first weights and measures how far the policy has moved."),
    )
    processes: int = field(
        default=1,
        validator=ge(1),
        metadata=doc(
            "Number of processes over which the trained copy is sharded (FSDP2).", changeable=True
        ),
    )
    replicas: int = field(
        default=1,
        validator=ge(1),
        metadata=doc(
            "Copies of the sharded model; each has processes / replicas shards (HSDP).",
            changeable=True,
        ),
    )
    gradients: Literal["sharded", "whole"] = field(
        default="sharded",
        metadata=doc(
            "With several processes: share gradients after each micro-batch ('sharded'), or once "
            "per update ('whole'): until then each process holds a whole gradient."
        ),
    )
    offload: Literal["none", "host"] = field(
        default="none",
        metadata=doc(
            "'host' keeps the trained copy, its gradients and moments in the processor's memory, "
            "and updates it there."
        ),
    )
    saving: Literal["wait", "background"] = field(
        default="wait",
        metadata=doc("Wait for each checkpoint, or write a copy in the 'background'."),
    )

    @property
    def is_sharded(self) -> bool:
        """Is the trained model a different one from the model in this process?"""
        return self.processes > 1 or self.offload == "host"

    @betas.validator
    def _check_betas(self, attribute: "Attribute[Any]", value: tuple[float, float]) -> None:
        if not all(0.0 <= beta < 1.0 for beta in value):
            raise ValueError(f"'betas' must be in [0, 1): {list(value)}")

    @stable_updates.validator
    def _check_stable_updates(self, attribute: "Attribute[Any]", value: int) -> None:
        if value and self.decay_updates is None:
            raise ValueError("'stable_updates' needs decay_updates: without, the rate never falls")

    @decay_to.validator
    def _check_decay_to(self, attribute: "Attribute[Any]", value: float) -> None:
        # The default is in the config of every stored run.
        if value != _DECAY_TO and self.decay_updates is None:
            raise ValueError("'decay_to' needs decay_updates: without, the rate never falls")

    @processes.validator
    def _check_processes(self, attribute: "Attribute[Any]", value: int) -> None:
        if value > 1 and self.sync == "same":
            raise ValueError("'processes' above 1 needs sync: copy")

    @replicas.validator
    def _check_replicas(self, attribute: "Attribute[Any]", value: int) -> None:
        if self.processes % value:
            raise ValueError(f"'replicas' is {value}, and does not divide {self.processes}")

    @offload.validator
    def _check_offload(self, attribute: "Attribute[Any]", value: str) -> None:
        if value == "host" and self.sync == "same":
            raise ValueError("offload: host needs sync: copy")


@frozen(kw_only=True)
class PolicyOptions(LearnOptions):
    """Reinforcement on credited episodes."""

    objective: Any = field(
        default="ipa",
        metadata=doc(
            "The loss: a name, or {type: NAME, and its options}. In Python also an "
            "ObjectiveOptions or an Objective.",
            component="objective",
            named_by="preset",
        ),
    )
    old_policy: OldPolicyName | None = field(
        default=None,
        metadata=doc(
            "pi_old: the weights before this step, those that sampled (stored by this trainer), or "
            "the sampler's own log-probabilities. null is recompute."
        ),
    )
    correction: CorrectionName | CorrectionOptions | None = field(
        default=None,
        metadata=doc(
            "What is done where pi_old is not the policy that sampled: a method's name, or "
            "{method, level, aggregation, cap, floor}. null is none, and is refused with "
            "run.staleness above 0 and old_policy: recompute."
        ),
    )
    keep_versions: int = field(
        default=4, validator=ge(1), metadata=doc("Versions kept for old_policy: rollout_version.")
    )
    keep_ratios: bool = field(
        default=True,
        metadata=doc("Write each step's importance ratios to ratios/ of the run directory."),
    )

    @keep_versions.validator
    def _check_keep_versions(self, attribute: "Attribute[Any]", value: int) -> None:
        if self.old_policy == "rollout_version" and self.is_sharded:
            raise ValueError("old_policy: rollout_version needs processes: 1 and offload: none")

    imitation: ImitationOptions = field(
        factory=ImitationOptions,
        metadata=doc("What forced completions teach: {when, weight, gamma}."),
    )
    critic: CriticOptions | None = field(
        default=None,
        metadata=doc("Values of states, for credit gae: {type: head} or {type: model}, and more."),
    )

    @critic.validator
    def _check_critic(self, attribute: "Attribute[Any]", value: CriticOptions | None) -> None:
        if value is not None and value.model is not None and self.lora is not None:
            raise ValueError(
                "'critic.model' and 'lora': a checkpoint of adapters names one model under them, "
                "the policy's; leave critic.model out, and the critic has adapters over a copy"
            )


@frozen(kw_only=True)
class SftOptions(LearnOptions):
    """Imitation of whole episodes."""

    learn_from: Literal["successful", "forced", "both"] = field(
        default="successful",
        metadata=doc(
            "Episodes with at least min_reward, the forced completions of any episode, or both."
        ),
    )
    min_reward: float = field(
        default=1.0, validator=[ge(0.0), le(1.0)], metadata=doc("Minimum reward of a success.")
    )
    normaliser: Literal["trajectories", "tokens", "trajectory-tokens"] = field(
        default="tokens", metadata=doc("What the sum over tokens is divided by.")
    )


TRAINERS: Mapping[str, type[LearnOptions]] = {"policy": PolicyOptions, "sft": SftOptions}
"""The options of each trainer of this package."""
