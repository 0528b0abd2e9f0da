"""Completes the credit of a step's samples with the critic's values, before its first update."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from attrs import evolve, frozen

from ale.errors import AleError
from ale_trainer_policy.critic_options import CriticOptions
from ale_trainer_policy.gae import Floats, Units, advantages, whitened
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.ratios import write_lines
from ale_trainer_policy.samples import Sample, ValueTargets
from ale_trainer_policy.tree import Splitter, by_sample
from ale_trainer_policy.worker_group import WorkerGroup


@frozen(kw_only=True, eq=False)
class Valued:
    """An episode's units, as the critic values them before the step: arrays of shape (U,)."""

    values: Floats
    advantages: Floats
    """The advantages before whitening."""
    returns: Floats
    """Discounted rewards that were earned; if the episode was cut off, those up to the cut, plus
    the value of its last state."""

    @property
    def targets(self) -> Floats:
        """The lambda-returns."""
        found: Floats = self.advantages + self.values
        return found


def with_values(
    learner: Learner | WorkerGroup,
    samples: Sequence[Sample],
    split: Splitter,
    options: CriticOptions,
) -> tuple[list[Sample], Mapping[str, Valued]]:
    """The samples in the same order, with advantages as weights and with targets for the critic.

    Returns:
        The samples, and the computed values by episode.

    Raises:
        AleError: an episode's credit was not made for a critic.
    """
    for each in samples:
        if each.units is None and each.sampled.any() and each.weight.any():
            raise AleError(f"the credit of episode {each.episode} was not made for a critic")
    with_units = [each for each in samples if each.units is not None]
    found: dict[str, Valued] = {}
    pieces = split(with_units)
    for piece, values in zip(pieces, learner.values(pieces), strict=True):
        ends = iter(values[sum(len(each.at) for each in piece) :])
        for sample, own in zip(piece, by_sample(piece, values), strict=True):
            assert sample.units is not None
            after = float(next(ends)) if len(sample.units.end) else 0.0
            found[sample.episode] = _valued(sample.units, own, after)
    weights = _weights(with_units, found, options)
    completed = {
        id(sample): _completed(sample, found[sample.episode], weight)
        for sample, weight in zip(with_units, weights, strict=True)
    }
    return [completed.get(id(each), each) for each in samples], found


def _valued(units: Units, values: Floats, after: float) -> Valued:
    own, gae = values[units.first], units.gae
    if not np.isfinite([after, *own]).all():
        raise AleError("the critic's values are not finite; a lower trainer.critic.lr may help")
    return Valued(
        values=own,
        advantages=advantages(units.rewards, own, after, gae.gamma, gae.lam),
        returns=advantages(units.rewards, own, after, gae.gamma, 1.0) + own,
    )


def _weights(
    samples: Sequence[Sample], found: Mapping[str, Valued], options: CriticOptions
) -> list[Floats]:
    """The advantages of the S tokens of a sample that are in a unit."""
    spread = [
        found[each.episode].advantages[each.units.unit]
        for each in samples
        if each.units is not None
    ]
    return whitened(spread) if options.advantages == "whitened" else spread


def _completed(sample: Sample, valued: Valued, weight: Floats) -> Sample:
    assert sample.units is not None
    zero = np.zeros(len(sample.at))
    first = sample.units.first

    def at(index: "np.ndarray[tuple[int], np.dtype[np.int64]]", values: Floats | float) -> Floats:
        column = zero.copy()
        column[index] = values
        return column

    value = ValueTargets(
        weight=at(first, 1.0), target=at(first, valued.targets), old=at(first, valued.values)
    )
    return evolve(sample, weight=at(sample.units.token, weight), value=value)


def write_values(folder: Path, step: int, found: Mapping[str, Valued]) -> None:
    """Write ``values/<step>.jsonl`` atomically: the critic's values of each episode's units.

    Args:
        folder: created with the first file.

    Raises:
        StoreError: the file can't be written.
    """
    lines = [
        {
            "episode_id": name,
            "values": valued.values.tolist(),
            "advantages": valued.advantages.tolist(),
            "returns": valued.returns.tolist(),
        }
        for name, valued in sorted(found.items())
    ]
    write_lines(folder / f"{step:05d}.jsonl", lines)
