"""Options of the credit schemes."""

from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, field, frozen

from ale.plugin import doc, ge, gt, le, lt
from ale.types import StopReason

_LARGEST = 1e6
"""Bound on rewards and penalties, so that no sum of them can overflow."""


@frozen(kw_only=True)
class IpaOptions:
    """Interaction-perceptive credit: the discounted return of each chunk."""

    gamma: float = field(
        default=0.95,
        validator=[gt(0.0), le(1.0)],
        metadata=doc("Discount per chunk, in (0, 1]. The paper gives no value."),
    )
    terminal_reward: Literal["score", "all-or-nothing"] = field(
        default="score",
        metadata=doc(
            "R, the terminal reward of an episode: its 'score', or 'all-or-nothing' as in the "
            "paper: 1 if every criterion holds, else 0."
        ),
    )
    failure_reward: float = field(
        default=0.0,
        validator=[ge(-_LARGEST), le(0.0)],
        metadata=doc("Replaces an R of 0. With 0, failures give no training signal."),
    )
    unfinished: Literal["score", "failure"] = field(
        default="score",
        metadata=doc(
            "R of an episode that a limit ended before its agent finished: its 'score', or that of "
            "a 'failure', whatever the grade."
        ),
    )
    per_chunk_rewards: Literal["terminal", "terminal-and-errors"] = field(
        default="terminal",
        metadata=doc(
            "r_k, the reward of chunk k: R at the last chunk and 0 elsewhere ('terminal', as in "
            "the paper), or this minus error_penalty for each failed tool call of the chunk "
            "('terminal-and-errors')."
        ),
    )
    error_penalty: float | None = field(
        default=None,
        metadata=doc(
            "Penalty of a failed tool call, at least 0; only with 'terminal-and-errors', where it "
            "is 0.1 if not given."
        ),
    )

    @error_penalty.validator
    def _check_error_penalty(self, attribute: "Attribute[Any]", value: float | None) -> None:
        if value is None:
            return
        if self.per_chunk_rewards == "terminal":
            raise ValueError("'error_penalty' needs per_chunk_rewards: terminal-and-errors")
        if not 0.0 <= value <= _LARGEST:
            raise ValueError(f"'error_penalty' must be in [0, {_LARGEST:g}]: {value}")


@frozen(kw_only=True)
class IpaLiteOptions:
    """ALE-lite's approximation of IPA: the score, weighted by position."""

    weighting: Literal["linear", "geometric"] = field(
        default="linear",
        metadata=doc(
            "Weight of chunk k of K: k / K ('linear') or decay to the power K - k ('geometric')."
        ),
    )
    decay: float | None = field(
        default=None,
        metadata=doc(
            "Base of the weights, in (0, 1); only with 'geometric', where it is 0.9 if not given."
        ),
    )
    error_penalty: float = field(
        default=0.1,
        validator=[ge(0.0), le(_LARGEST)],
        metadata=doc("Subtracted from a chunk's reward for each of its failed tool calls."),
    )

    @decay.validator
    def _check_decay(self, attribute: "Attribute[Any]", value: float | None) -> None:
        if value is None:
            return
        if self.weighting == "linear":
            raise ValueError("'decay' needs weighting: geometric")
        if not 0.0 < value < 1.0:
            raise ValueError(f"'decay' must be in (0, 1): {value}")


@frozen(kw_only=True)
class ReinforceOptions:
    """The return, with or without a baseline."""

    gamma: float = field(
        default=1.0,
        validator=[gt(0.0), le(1.0)],
        metadata=doc("Discount per chunk, in (0, 1]. At 1 every chunk has the same weight."),
    )
    baseline: Literal["none", "batch"] = field(
        default="none",
        metadata=doc("Subtracted from every return: nothing, or the mean reward of the 'batch'."),
    )


@frozen(kw_only=True)
class FilteredImitationOptions:
    """Successes weigh 1, other episodes nothing."""

    unfinished: Literal["score", "failure"] = field(
        default="score",
        metadata=doc(
            "An episode that a limit ended before its agent finished counts by its 'score', or as "
            "a 'failure', whatever the grade."
        ),
    )


@frozen(kw_only=True)
class OracleOptions:
    """The measured worth of each chunk."""

    values: Path = field(
        metadata=doc("File of values that `ale data values` wrote: values.jsonl of a run.")
    )


@frozen(kw_only=True)
class OverlongOptions:
    """Soft overlong punishment (DAPO, arXiv:2503.14476, Eq. 13), added to an episode's reward."""

    limit: int = field(
        validator=ge(1),
        metadata=doc("Number of sampled tokens of an episode from which the punishment is -1."),
    )
    buffer: int = field(
        validator=ge(1),
        metadata=doc("Number of tokens before the limit over which the punishment falls from 0."),
    )

    @buffer.validator
    def _check_buffer(self, attribute: "Attribute[Any]", value: int) -> None:
        if value > self.limit:
            raise ValueError(f"'buffer' is {value}, more than the limit of {self.limit}")


@frozen(kw_only=True)
class GrpoOptions:
    """The reward, normalised within its group."""

    std: Literal["sample", "population"] = field(
        default="sample",
        metadata=doc("Divide the sum of squares by n - 1 ('sample') or by n ('population')."),
    )
    eps: float = field(
        default=1e-6,
        validator=[gt(0.0), le(1.0)],
        metadata=doc("Added to the standard deviation."),
    )
    overlong: OverlongOptions | None = field(
        default=None,
        metadata=doc("{limit, buffer}: punish long episodes, as DAPO does; null: no punishment."),
    )


@frozen(kw_only=True)
class GigpoOptions:
    """The advantage of an episode in its group, plus that of each chunk in its state."""

    state: Literal["history", "observation"] = field(
        default="history",
        metadata=doc(
            "Two states are one if all answers and observations before them are equal ('history'), "
            "or if what was observed last is ('observation', as in the paper)."
        ),
    )
    gamma: float = field(
        default=0.95,
        validator=[gt(0.0), le(1.0)],
        metadata=doc("Discount per chunk of the returns that are compared in a state, in (0, 1]."),
    )
    step_weight: float = field(
        default=1.0,
        validator=[ge(0.0), le(_LARGEST)],
        metadata=doc("Factor on the advantage of a chunk in its state."),
    )


@frozen(kw_only=True)
class RepairOptions:
    """The return of each attempt, with a bonus for a success after failed ones."""

    gamma: float = field(
        default=0.4,
        validator=[gt(0.0), lt(1.0)],
        metadata=doc("Share of the next attempt's return that a failed attempt gets, in (0, 1)."),
    )
    repair_bonus: float = field(
        default=0.5,
        validator=ge(0.0),
        metadata=doc(
            "Added to the reward, as a share of it, if an earlier attempt failed. Must be below 1 "
            "/ gamma - 1, so that failing first never pays."
        ),
    )
    baseline: Literal["group", "batch", "none"] = field(
        default="group",
        metadata=doc(
            "Subtracted from every return: the mean return of all attempts of the 'group', the "
            "mean reward of the 'batch', or nothing."
        ),
    )

    @repair_bonus.validator
    def _check_repair_bonus(self, attribute: "Attribute[Any]", value: float) -> None:
        if self.gamma * (1.0 + value) >= 1.0:
            raise ValueError(
                f"'repair_bonus' must be below 1 / gamma - 1 = {1.0 / self.gamma - 1.0:.4g}, or "
                f"failing first would pay: {value}"
            )


@frozen(kw_only=True)
class GaeOptions:
    """Generalised advantage estimation, completed by the critic of the trainer."""

    gamma: float = field(
        default=1.0, validator=[gt(0.0), le(1.0)], metadata=doc("Discount per unit, in (0, 1].")
    )
    lam: float = field(
        default=0.95,
        validator=[ge(0.0), le(1.0)],
        metadata=doc(
            "lambda, in [0, 1]. At 1, the advantage is the return minus the critic's value; at 0, "
            "one unit's reward plus the change of value."
        ),
    )
    unit: Literal["token", "turn", "chunk"] = field(
        default="chunk",
        metadata=doc("One step of the decision process, whose tokens share an advantage."),
    )
    bootstrap: tuple[StopReason, ...] = field(
        default=("time_limit",),
        metadata=doc(
            "Stop reasons of episodes that were cut off, not ended: what such an episode would "
            "have earned is the critic's value of its last state, in place of its reward."
        ),
    )
    critic: Path | None = field(
        default=None,
        metadata=doc(
            "The folder values of a run, which its trainer has written: episodes in it get "
            "the advantages from its critic's values, without a trainer."
        ),
    )

    @critic.validator
    def _check_critic(self, attribute: "Attribute[Any]", value: Path | None) -> None:
        if value is not None and self.unit != "chunk":
            raise ValueError("'critic' needs unit: chunk, whose values it has")


@frozen(kw_only=True)
class StepScoresOptions:
    """Process rewards from a scorer, beside the outcome."""

    scorer: str = field(
        metadata=doc(
            "Name of the scorer in the section 'scorers'; 'feedback' for scores from outside."
        )
    )
    form: Literal["potential", "sum", "min"] = field(
        default="potential",
        metadata=doc(
            "How scores become credit. 'potential': a chunk earns what it adds to the score, which "
            "keeps the best policy the best. 'sum': it earns the scores from it on, each less the "
            "group's mean. 'min': it earns the lowest score from it on."
        ),
    )
    process: float = field(
        default=1.0,
        validator=[ge(0.0), le(_LARGEST)],
        metadata=doc("Factor on the scores."),
    )
    outcome: float = field(
        default=1.0,
        validator=[ge(0.0), le(_LARGEST)],
        metadata=doc("Factor on the episode's reward."),
    )
    gamma: float = field(
        default=1.0, validator=[gt(0.0), le(1.0)], metadata=doc("Discount per chunk, in (0, 1].")
    )
    baseline: Literal["group", "none"] | None = field(
        default=None,
        metadata=doc(
            "Subtracted from the episode's reward: the mean of its 'group', or 'none'. Default: "
            "'none' with 'potential', whose scores are the baseline of what follows; else 'group'."
        ),
    )
    lam: float = field(
        default=1.0,
        validator=[ge(0.0), le(1.0)],
        metadata=doc(
            "Lambda of 'potential': below 1, what later chunks add to the score counts less for a "
            "chunk; with 0, it gets what it adds itself. Scores must then be right: the best "
            "policy may not stay the best."
        ),
    )
    abstained: Literal["chunk", "outcome", "skip"] = field(
        default="chunk",
        metadata=doc(
            "A group in which a chunk has no score: leave out that 'chunk' (with 'potential' the "
            "potential stays as it was), credit the group by its 'outcome' alone, or 'skip' it."
        ),
    )

    def __attrs_post_init__(self) -> None:
        if self.lam != 1 and self.form != "potential":
            raise ValueError(
                f"'lam' is an option of form 'potential', and the form is '{self.form}'"
            )
