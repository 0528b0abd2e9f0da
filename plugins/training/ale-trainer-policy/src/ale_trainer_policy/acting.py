"""Which parts of an objective can act with the settings of a run, by evaluating it.

The loss is evaluated on made-up tokens whose log-probabilities under pi_theta, pi_old and mu differ
wherever the settings let them, with weights that the run's own credit scheme gave to made-up
episodes. A part is idle if the gradient stays the same when a neutral part takes its place; the
reason is the smallest set of settings that would have to change for it to act.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from ale.protocols import CreditScheme, Objective, ObjectiveFacts, ObjectivePart, Tokens
from ale_trainer_policy.example_groups import Weighted, weighted_examples
from ale_trainer_policy.options import PRESETS, ObjectiveOptions, ObjectiveParts, OldPolicyName
from ale_trainer_policy.parts import LIMITS

_TOKENS = 3
"""Tokens of each made-up chunk."""
_LOG_RATIOS = 6.0
"""The largest mean log ratio of a made-up trajectory, and of a chunk around that; nats."""


@frozen(kw_only=True)
class Setting:
    """The settings of a run that decide where pi_theta, pi_old and mu differ."""

    old_policy: OldPolicyName
    several_updates: bool
    """A step makes more than one update."""
    stale: bool
    """Samples may come from older weights."""
    same_numerics: bool
    """With the same weights, sampler and trainer compute the same probability, but for rounding."""


_RELAXED: Mapping[str, str] = {
    "several_updates": "1 update per step",
    "stale": "no stale samples, and sampler and trainer compute alike",
    "negative": "no negative weight",
}
"""Settings under which a part may be idle, in words."""


def explain(
    objective: Objective, name: str, setting: Setting, credit: CreditScheme, rollouts: int
) -> ObjectiveFacts:
    """Facts about an objective in a run."""
    examples = weighted_examples(credit, rollouts)
    probe = _Probe(setting, examples.weighted)
    parts = tuple(
        ObjectivePart(name=part, idle=_idle(objective, neutral, probe), metrics=metrics)
        for part, neutral, metrics in _parts(objective)
    )
    reduces_to = ""
    if any(part.idle for part in parts):
        reduces_to = _reduced(objective, name, probe, examples.described)
    return ObjectiveFacts(name=name, parts=parts, reduces_to=reduces_to)


def objective_name(chosen: object) -> str:
    """The name of `PolicyOptions.objective`."""
    if isinstance(chosen, ObjectiveOptions):
        return chosen.preset
    if isinstance(chosen, str):
        return chosen
    same = (name for name, preset in PRESETS.items() if preset == chosen)
    return next(same, type(chosen).__name__)


def _parts(objective: Objective) -> Iterator[tuple[str, Objective, Mapping[str, float]]]:
    """Each part by name, the objective with a neutral part in its place, and its metrics.

    The parts of an objective of another package are not known.
    """
    if not isinstance(objective, ObjectiveParts):
        return
    sides = {objective.positive, objective.negative}
    if sides != {"none"}:
        neutral = evolve(objective, positive="none", negative="none")
        yield "ratio", neutral, {"ratio_min": 1.0, "ratio_max": 1.0}
    for limit in sorted(sides.intersection(LIMITS)):
        unlimited: dict[str, Any] = {
            side: "ratio" for side in ("positive", "negative") if getattr(objective, side) == limit
        }
        metric = "clipped_fraction" if limit == "clip" else "clamped_fraction"
        yield limit, evolve(objective, **unlimited), {metric: 0.0}
    if objective.mask != "none":
        yield "mask", evolve(objective, mask="none"), {"masked_fraction": 0.0}
    if objective.correction.method != "none":
        none = evolve(objective.correction, method="none", floor=None)
        neutral = evolve(objective, correction=none)
        yield "correction", neutral, {"mismatch_min": 1.0, "mismatch_max": 1.0}


class _Probe:
    """Made-up tokens of one setting."""

    def __init__(self, setting: Setting, weighted: Sequence[Weighted]) -> None:
        self.setting = setting
        self.weighted = weighted

    def relaxed(self, names: Sequence[str]) -> "_Probe":
        """The same with these of `_RELAXED` changed."""
        weighted = self.weighted
        if "negative" in names:
            negative = [
                evolve(e, weights=(-1.0,) * len(e.weights), positive=False) for e in weighted
            ]
            weighted = [*weighted, *negative]
        changed: dict[str, Any] = {name: True for name in names if name != "negative"}
        return _Probe(evolve(self.setting, **changed), weighted)

    def holds(self) -> list[str]:
        """The names of `_RELAXED` that hold, so that they may be changed."""
        found = [name for name in ("several_updates", "stale") if not getattr(self.setting, name)]
        negative = any(weight < 0 for each in self.weighted for weight in each.weights)
        return found if negative else [*found, "negative"]

    def gradient(self, objective: Objective) -> Tensor:
        """d loss / d log pi_theta of each token."""
        tokens, logp, old = self._tokens()
        logp = logp.requires_grad_()
        zeros = torch.zeros_like(logp)
        terms = objective.evaluate(tokens, logp, old, zeros if objective.needs_entropy else None)
        if not terms.loss.requires_grad:
            return zeros.detach()
        (found,) = torch.autograd.grad(terms.loss, logp)
        return found

    def _tokens(self) -> tuple[Tokens, Tensor, Tensor]:
        chunks = [
            (weight, each.positive, number)
            for number, each in enumerate(self.weighted)
            for weight in each.weights
        ]
        random = torch.Generator().manual_seed(0)
        n = len(chunks) * _TOKENS
        chunk_id = torch.arange(len(chunks)).repeat_interleave(_TOKENS)
        trajectory_id = torch.tensor([number for _, _, number in chunks])[chunk_id]

        def log_ratio(differs: bool) -> Tensor:
            of_trajectory = _spread(len(self.weighted), random)[trajectory_id]
            of_chunk = _spread(len(chunks), random)[chunk_id]
            of_token = torch.randn(n, generator=random, dtype=torch.float64)
            return (of_trajectory + of_chunk + of_token) * float(differs)

        setting = self.setting
        engines = setting.stale or not setting.same_numerics
        mismatch = log_ratio(
            engines
            if setting.old_policy == "recompute"
            else not setting.same_numerics and setting.old_policy != "rollout_engine"
        )
        moved = {
            "recompute": setting.several_updates,
            "rollout_version": setting.several_updates or setting.stale,
            "rollout_engine": setting.several_updates or engines,
        }[setting.old_policy]
        logp = -3.0 + torch.rand(n, generator=random, dtype=torch.float64)
        old = logp - log_ratio(moved)
        reference = logp - torch.rand(n, generator=random, dtype=torch.float64)
        tokens = Tokens(
            weight=torch.tensor([w for w, _, _ in chunks], dtype=torch.float64)[chunk_id],
            imitation=torch.zeros(n, dtype=torch.float64),
            behaviour_logp=old - mismatch,
            sampled=torch.ones(n, dtype=torch.bool),
            positive=torch.tensor([positive for _, positive, _ in chunks])[chunk_id],
            chunk_id=chunk_id,
            trajectory_id=trajectory_id,
            regularised=torch.full((n,), 1.0 / n, dtype=torch.float64),
            reference_logp=reference,
        )
        return tokens, logp, old


def _spread(n: int, random: torch.Generator) -> Tensor:
    """Numbers from one bound to the other in random order."""
    values = torch.linspace(-_LOG_RATIOS, _LOG_RATIOS, n, dtype=torch.float64)
    return values[torch.randperm(n, generator=random)]


def _same(one: Objective, other: Objective, probe: _Probe) -> bool:
    found, expected = probe.gradient(one), probe.gradient(other)
    return bool(torch.allclose(found, expected, rtol=1e-9, atol=0.0, equal_nan=True))


def _idle(objective: Objective, neutral: Objective, probe: _Probe) -> str:
    """Why a part is idle; empty if it can act."""
    if not _same(objective, neutral, probe):
        return ""
    holds = probe.holds()
    for size in range(1, len(holds) + 1):
        for names in combinations(holds, size):
            if not _same(objective, neutral, probe.relaxed(names)):
                return ", ".join(_RELAXED[name] for name in names)
    return "whatever the ratios"


def _reduced(objective: Objective, name: str, probe: _Probe, credited: str) -> str:
    """The simplest loss with the same gradient, and the presets that have it too."""
    reinforce = PRESETS["reinforce"]
    if not _same(objective, reinforce, probe):
        return ""
    other = objective.normaliser != reinforce.normaliser
    divided = f", divided by {objective.normaliser}" if other else ""
    return f"reinforce{credited}{divided}{_also(objective, name, probe)}"


def _also(objective: Objective, name: str, probe: _Probe) -> str:
    def divisor(of: Objective) -> tuple[str, float]:
        return of.normaliser, getattr(of, "normaliser_constant", math.nan)

    same = [
        other
        for other, preset in PRESETS.items()
        if other not in (name, "reinforce")
        and divisor(preset) == divisor(objective)
        and _same(objective, preset, probe)
    ]
    return f" (the same as {', '.join(same)})" if same else ""
