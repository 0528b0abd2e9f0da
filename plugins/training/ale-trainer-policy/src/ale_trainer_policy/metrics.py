"""Metrics of a step; the README lists their names."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from ale.protocols import Terms
from ale.runs import SUCCESS
from ale.types import Batch
from ale_trainer_policy.critic import ValueTerms
from ale_trainer_policy.learner import Measured
from ale_trainer_policy.samples import Bools, Floats, Ints
from ale_trainer_policy.tree import Datum, by_sample
from ale_trainer_policy.valuing import Valued

COUNTS = (
    "chunks_empty",
    "episodes_skipped",
    "groups_all_failed",
    "groups_all_succeeded",
    "groups_empty",
    "groups_equal_rewards",
    "prefix_breaks",
    "steps_skipped",
    "tokens_computed",
    "tokens_in_rows",
    "tokens_trained",
    "tokens_without_chunk",
    "trajectories",
    "trajectories_without_signal",
    "turns_without_tokens",
    "updates",
    "updates_without_gradient",
)
"""Reported by every step, even when 0."""
NORMS = ("grad_norm", "critic_grad_norm")
QUANTILES = {"min": 0.0, "p05": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}
NAMES = (
    *COUNTS,
    *NORMS,
    *(f"{name}_{level}" for name in ("ratio", "mismatch") for level in QUANTILES),
    *("loss", "loss_rl", "loss_imitation", "loss_kl", "loss_entropy", "loss_value", "lr"),
    *(
        f"{name}_fraction"
        for what in ("masked", "clipped")
        for name in (what, f"{what}_above", f"{what}_below")
    ),
    *("clamped_fraction", "masked_chunks_fraction", "clamped_chunks_fraction"),
    *("corrected_fraction", "corrected_capped_fraction", "corrected_dropped_fraction"),
    *("effective_sample_size", "entropy", "kl_rollout", "kl_start"),
    *("trajectories_without_hint", "hints_too_long", "hints_not_placed"),
    *("tokens_of_successes", "tokens_of_others", "value_clipped_fraction"),
    *("value_mean", "return_mean", "advantage_mean", "explained_variance"),
    *("episodes_imitated", "next_turns_imitated", "next_turns_left_out"),
    *("seconds", "tokens_per_second"),
)
"""The metrics that a step may have."""


@define
class MetricsAccumulator:
    """Accumulates metrics over the passes of a step."""

    counts: "Counter[str]" = field(factory=Counter)
    _values: "defaultdict[str, list[Floats]]" = field(factory=lambda: defaultdict(list))
    _log_weights: list[Floats] = field(factory=list)
    """log pi_theta - log mu_old of the tokens with a weight."""
    _losses: "defaultdict[str, float]" = field(factory=lambda: defaultdict(float))
    _norms: list[Sequence[float]] = field(factory=list)
    log_ratios: dict[str, Floats] = field(factory=dict)
    """log pi_theta - log mu_old of each token of an episode, (T,), from the last pass over it, by
    episode id; NaN for forced tokens."""
    entropies: dict[str, Floats] = field(factory=dict)
    """Entropy of the distribution before each of them, likewise, nats."""

    def add(self, datum: Datum, measured: Measured) -> None:
        """Add a pass with a finite loss."""
        terms = measured.terms
        sampled = datum.sampled & (datum.weight != 0)
        self._add_terms(datum, terms, sampled)
        trained = sampled | (datum.imitation != 0) | (datum.regularised != 0)
        entropy = measured.entropy.double().cpu().numpy()
        self._values["entropy"].append(entropy[trained])
        logp = measured.logp.double().cpu().numpy()
        log_ratio = logp - datum.behaviour_logp
        self._log_weights.append(log_ratio[sampled])
        self._values["kl_rollout"].append(_k3(log_ratio)[datum.sampled])
        for values, kept in ((log_ratio, self.log_ratios), (entropy, self.entropies)):
            of_sampled = by_sample(datum.samples, np.where(datum.sampled, values, np.nan))
            for sample, own in zip(datum.samples, of_sampled, strict=True):
                kept[sample.episode] = own
        self._losses["loss"] += float(terms.loss.detach())
        if measured.value is not None and datum.value_weight.any():
            self._add_value(datum, measured.value)
        parts = {"loss_rl": terms.reinforcement, "loss_imitation": terms.imitation}
        if datum.regularised.any():
            parts |= {"loss_kl": terms.kl, "loss_entropy": terms.entropy}
        for name, value in _measured(parts).items():
            self._losses[name] += float(value)
        self.counts["tokens_trained"] += int(trained.sum())
        self.counts["tokens_computed"] += measured.computed
        self.counts["tokens_in_rows"] += sum(sample.n_tokens for sample in datum.samples)

    def _add_terms(self, datum: Datum, terms: Terms, sampled: Bools) -> None:
        for name, value in _measured({"ratio": terms.ratio, "mismatch": terms.mismatch}).items():
            self._values[name].append(value.double().cpu().numpy()[sampled])
        causes = _causes(terms)
        for name, where in causes.items():
            self._values[name].append(where[sampled].astype(np.float64))
        for name in ("masked", "clamped"):
            if f"{name}_fraction" in causes:
                where = causes[f"{name}_fraction"][sampled]
                chunks = _chunks_with(datum.chunk_id[sampled], where)
                self._values[f"{name}_chunks_fraction"].append(chunks)

    def _add_value(self, datum: Datum, terms: ValueTerms) -> None:
        self._losses["loss_value"] += float(terms.loss)
        clipped: Bools = terms.clipped.cpu().numpy()
        counted = clipped[datum.value_weight != 0].astype(np.float64)
        self._values["value_clipped_fraction"].append(counted)

    def add_values(self, valued: Sequence[Valued]) -> None:
        """Add the units of a step with the critic's values from before that step."""
        if not valued:
            return
        values = np.concatenate([each.values for each in valued])
        returns = np.concatenate([each.returns for each in valued])
        self._values["value_mean"].append(values)
        self._values["return_mean"].append(returns)
        self._values["advantage_mean"].append(np.concatenate([e.advantages for e in valued]))
        if returns.var() > 0:
            explained = 1.0 - (returns - values).var() / returns.var()
            self._values["explained_variance"].append(np.array([explained]))

    def add_lengths(self, batch: Batch) -> None:
        """Add the sampled tokens of each episode, by its outcome."""
        for rollout in (each for group in batch.groups for each in group.group.rollouts):
            name = "successes" if rollout.episode.reward == SUCCESS else "others"
            completions = [turn.completion for turn in rollout.episode.trajectory.turns]
            traces = [each.tokens for each in completions if not each.forced]
            if n := sum(len(trace.output_ids) for trace in traces if trace is not None):
                self._values[f"tokens_of_{name}"].append(np.array([float(n)]))

    def add_update(self, norms: Sequence[float], rate: float) -> None:
        """Add an update: gradient norms before clipping, and the policy's learning rate."""
        self._norms.append(norms)
        self.counts["updates"] += 1
        self._losses["lr"] = rate

    def reset_updates(self) -> None:
        """Drop the updates: they were rolled back."""
        self._norms.clear()
        self.counts["updates"] = 0

    def add_start(self, logp: Floats, start_logp: Floats, sampled: Bools) -> None:
        """Add log-probabilities of the same tokens under the current and the initial weights."""
        self._values["kl_start"].append(_k3(start_logp - logp)[sampled])

    def metrics(self) -> dict[str, float]:
        """All finite metrics; those without a measurement are left out."""
        names = {*COUNTS, *self.counts}
        found: dict[str, float] = {name: float(self.counts[name]) for name in sorted(names)}
        if self._norms:
            means = np.mean(self._norms, axis=0)
            found |= {n: float(x) for n, x in zip(NORMS, means, strict=False)}
            found |= self._losses
        for name, parts in self._values.items():
            values = np.concatenate(parts)
            if not len(values):
                continue
            if name in ("ratio", "mismatch"):
                levels = np.quantile(values, list(QUANTILES.values()))
                named = zip(QUANTILES, levels, strict=True)
                found |= {f"{name}_{key}": float(x) for key, x in named}
            else:
                found[name] = float(values.mean())
        if any(map(len, self._log_weights)):
            found["effective_sample_size"] = _effective_share(np.concatenate(self._log_weights))
        return {name: value for name, value in found.items() if math.isfinite(value)}


def _measured(terms: Mapping[str, Any]) -> dict[str, Any]:
    """The terms that an objective gives."""
    return {name: value for name, value in terms.items() if value is not None}


def _causes(terms: Terms) -> Mapping[str, Bools]:
    """Reasons why a token's gradient differs from its weight's, by metric name; each (T,)."""
    found: dict[str, Any] = {}
    if terms.unmasked is not None and terms.mismatch is not None:
        masked = ~terms.unmasked
        found |= {
            "masked_fraction": masked,
            "masked_above_fraction": masked & (terms.mismatch > 1),
            "masked_below_fraction": masked & (terms.mismatch < 1),
        }
    if terms.coefficient is not None and terms.ratio is not None:
        dropped = terms.coefficient == 0
        found |= {
            "clipped_fraction": dropped,
            "clipped_above_fraction": dropped & (terms.ratio > 1),
            "clipped_below_fraction": dropped & (terms.ratio < 1),
        }
        if terms.limited is not None:
            found["clamped_fraction"] = terms.limited & ~dropped
    if terms.corrected is not None and terms.correction is not None:
        found |= {
            "corrected_fraction": terms.corrected,
            "corrected_capped_fraction": terms.corrected & (terms.correction != 0),
            "corrected_dropped_fraction": terms.corrected & (terms.correction == 0),
        }
    return {name: where.cpu().numpy() for name, where in found.items()}


def _chunks_with(chunk: Ints, where: Bools) -> Floats:
    """1 for each chunk with a token where `where` is true, 0 for every other chunk; (C,)."""
    chunks, number = np.unique(chunk, return_inverse=True)
    hits = np.bincount(number, weights=where, minlength=len(chunks))
    return (hits > 0).astype(np.float64)


def _effective_share(log_weights: Floats) -> float:
    """(sum w)^2 / (n sum w^2), the effective sample size as a share of n (Kish, 1965)."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (len(weights) * (weights**2).sum()))


def _k3(log_ratio: Floats) -> Floats:
    """exp(x) - 1 - x for x = log q - log p; its mean under p is KL(p || q); never negative."""
    found: Floats = np.expm1(log_ratio) - log_ratio
    return found
