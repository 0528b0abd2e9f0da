"""pi_old, the denominator of the importance ratio, under three definitions."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import evolve
from torch import Tensor

from ale.errors import AleError
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import OldPolicyName
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.tree import Splitter, with_column
from ale_trainer_policy.worker_group import WorkerGroup

PREFIX = "version"


class OldPolicy:
    """Computes log pi_old of samples.

    Args:
        choice: ``recompute``: under the weights before this step. ``rollout_version``: under the
            weights that sampled each token, stored here. ``rollout_engine``: the log-probability
            that the sampler recorded.
        keep: how many versions to store.
    """

    def __init__(self, choice: OldPolicyName, keep: int) -> None:
        self._choice = choice
        self._keep = keep
        self._weights_of: OrderedDict[int, Mapping[str, Tensor]] = OrderedDict()

    def store_version(self, version: int, learner: Learner | WorkerGroup) -> None:
        """Store the weights that sampling uses from now on, if they will be needed."""
        if self._choice == "rollout_version":
            # The options refuse rollout_version with several processes.
            assert isinstance(learner, Learner)
            self._weights_of[version] = learner.weights()
            while len(self._weights_of) > self._keep:
                self._weights_of.popitem(last=False)

    def with_old_policy(
        self,
        learner: Learner | WorkerGroup,
        samples: Sequence[Sample],
        split: Splitter,
        *,
        n_updates: int,
    ) -> list[Sample]:
        """The samples with their log pi_old, in the same order.

        With ``recompute`` and one update pi_old is pi_theta itself, and nothing is computed.

        Raises:
            AleError: the weights that sampled a token are no longer stored.
        """
        if self._choice == "rollout_engine":
            return [evolve(each, old_logp=each.behaviour_logp) for each in samples]
        if self._choice == "recompute" and n_updates == 1:
            return list(samples)
        pieces = split([each for each in samples if each.trainable])
        return with_column(samples, "old_logp", pieces, self._logps(learner, pieces))

    def _logps(
        self, learner: Learner | WorkerGroup, pieces: Sequence[Sequence[Sample]]
    ) -> list[Floats]:
        if self._choice == "recompute":
            return learner.logps(pieces)
        # The options refuse rollout_version with several processes.
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
        if version not in self._weights_of:
            raise AleError(
                f"tokens were sampled from version {version}, and only "
                f"{', '.join(map(str, self._weights_of))} are stored: set trainer.keep_versions "
                "higher"
            )
        return self._weights_of[version]

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint, by name."""
        return {
            f"{PREFIX}/{version}/{name}": tensor
            for version, weights in self._weights_of.items()
            for name, tensor in weights.items()
        }

    def load_state(self, tensors: Mapping[str, Tensor], versions: Sequence[int]) -> None:
        """Restore what `state` returned."""
        if self._choice != "rollout_version":
            return
        self._weights_of.clear()
        for version in versions:
            prefix = f"{PREFIX}/{version}/"
            self._weights_of[version] = {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
