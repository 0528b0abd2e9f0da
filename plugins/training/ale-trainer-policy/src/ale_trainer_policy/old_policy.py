"""pi_old, the denominator of the importance ratio, under three definitions."""

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import define, evolve, field
from torch import Tensor

from ale.errors import AleError
from ale_trainer_policy.learner import Learner
from ale_trainer_policy.options import OldPolicyName
from ale_trainer_policy.samples import Floats, Sample
from ale_trainer_policy.tree import Splitter, with_column
from ale_trainer_policy.worker_group import WorkerGroup

PREFIX = "version"


@define
class OldPolicy:
    """Computes log pi_old of samples."""

    _choice: OldPolicyName
    """``recompute``: under the weights before this step. ``rollout_version``: under the weights
    that sampled each token, stored here. ``rollout_engine``: the log-probability that the sampler
    recorded."""
    _keep: int
    """How many versions to store."""
    weights_of: dict[int, Mapping[str, Tensor]] = field(factory=dict, init=False)
    """By version, the oldest first."""

    def store_version(self, version: int, learner: Learner | WorkerGroup) -> None:
        """Store the weights that sampling uses from now on, if they will be needed."""
        if self._choice == "rollout_version":
            # The options refuse rollout_version with several processes.
            assert isinstance(learner, Learner)
            self.weights_of[version] = learner.weights()
            while len(self.weights_of) > self._keep:
                del self.weights_of[next(iter(self.weights_of))]

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
        if self._choice == "recompute":
            found = learner.logps(pieces)
        else:
            # The options refuse rollout_version with several processes.
            assert isinstance(learner, Learner)
            found = [self._by_version(learner, piece) for piece in pieces]
        return with_column(samples, "old_logp", pieces, found)

    def _by_version(self, learner: Learner, micro: Sequence[Sample]) -> Floats:
        versions = np.concatenate([each.version for each in micro])
        logp: Floats = np.zeros(len(versions))
        for version in np.unique(versions):
            weights = self._weights(int(version))
            logp = np.where(versions == version, learner.logp(micro, weights), logp)
        return logp

    def _weights(self, version: int) -> Mapping[str, Tensor]:
        if version not in self.weights_of:
            raise AleError(
                f"tokens were sampled from version {version}, and only "
                f"{', '.join(map(str, self.weights_of))} are stored: set trainer.keep_versions "
                "higher"
            )
        return self.weights_of[version]

    def state(self) -> dict[str, Tensor]:
        """Tensors of a checkpoint, by name."""
        return {
            f"{PREFIX}/{version}/{name}": tensor
            for version, weights in self.weights_of.items()
            for name, tensor in weights.items()
        }

    def load_state(self, tensors: Mapping[str, Tensor], versions: Sequence[int]) -> None:
        """Restore what `state` returned."""
        if self._choice != "rollout_version":
            return
        self.weights_of.clear()
        for version in versions:
            prefix = f"{PREFIX}/{version}/"
            self.weights_of[version] = {
                name.removeprefix(prefix): tensor
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }
