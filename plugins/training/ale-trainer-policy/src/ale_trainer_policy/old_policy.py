"""pi_old: the denominator of the ratio, by three readings that the paper leaves open."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import evolve
from torch import Tensor

from ale.errors import AleError
from ale_trainer_policy.fleet import Fleet
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import OldPolicyName
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.tree import with_old_logp

Splitter = Callable[[Sequence[Sample]], Sequence[Sequence[Sample]]]
PREFIX = "version"


class OldPolicy:
    """Gives samples their log pi_old.

    Args:
        choice: ``recompute``: the weights before this step. ``rollout_version``: the weights that
            each token was sampled from, which are kept here. ``rollout_engine``: what the sampler
            itself said.
        keep: how many versions are kept.
    """

    def __init__(self, choice: OldPolicyName, keep: int) -> None:
        self._choice = choice
        self._keep = keep
        self._kept: OrderedDict[int, Mapping[str, Tensor]] = OrderedDict()

    def published(self, version: int, learner: Learner | Fleet) -> None:
        """Tokens may be sampled from these weights from now on."""
        if self._choice == "rollout_version":
            self._kept[version] = learner.weights()
            while len(self._kept) > self._keep:
                self._kept.popitem(last=False)

    def scored(
        self,
        learner: Learner | Fleet,
        samples: Sequence[Sample],
        split: Splitter,
        *,
        n_updates: int,
    ) -> list[Sample]:
        """The samples with their log pi_old, in the same order.

        With ``recompute`` and one update pi_old is pi_theta itself, and nothing is computed.

        Raises:
            AleError: weights that a token was sampled from are not kept any more.
        """
        if self._choice == "rollout_engine":
            return [evolve(each, old_logp=each.behaviour_logp) for each in samples]
        if self._choice == "recompute" and n_updates == 1:
            return list(samples)
        found = {id(each): each for each in samples}
        origin = {}
        pieces = split([each for each in samples if each.teaches])
        for micro, logp in zip(pieces, self._logps(learner, pieces), strict=True):
            for before, after in zip(micro, with_old_logp(micro, logp), strict=True):
                origin[id(before)] = after
        return [origin.get(key, each) for key, each in found.items()]

    def _logps(self, learner: Learner | Fleet, pieces: Sequence[Sequence[Sample]]) -> list[Floats]:
        if self._choice == "recompute":
            return learner.logps(pieces)
        # The options hold that old versions and several processes don't meet.
        assert isinstance(learner, Learner)
        return [self._by_version(learner, piece) for piece in pieces]

    def _by_version(self, learner: Learner, micro: Sequence[Sample]) -> Floats:
        versions = np.concatenate([each.version for each in micro])
        logp: Floats = np.zeros(len(versions))
        for version in np.unique(versions):
            weights = self._weights(int(version))
            logp = np.where(versions == version, learner.logp(micro, weights), logp)
        return logp

    def _weights(self, version: int) -> Mapping[str, Tensor]:
        if version not in self._kept:
            raise AleError(
                f"tokens were sampled from version {version}, and only "
                f"{', '.join(map(str, self._kept))} are kept: set trainer.keep_versions higher, or "
                "trainer.old_policy to recompute"
            )
        return self._kept[version]

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint, by name."""
        return {
            f"{PREFIX}/{version}/{name}": tensor
            for version, weights in self._kept.items()
            for name, tensor in weights.items()
        }

    def load_state(self, tensors: Mapping[str, Tensor], versions: Sequence[int]) -> None:
        """Take what `state` gave."""
        if self._choice != "rollout_version":
            return
        self._kept.clear()
        for version in versions:
            prefix = f"{PREFIX}/{version}/"
            self._kept[version] = {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
