"""The credit of every installed scheme, for copies of the page: nothing computes it there."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ale.errors import AleError
from ale.runs import Crediting, Registry, RunReader
from ale.types import Credit, Group
from ale_look.inspect.against import every_scheme
from ale_look.inspect.report.gathering import Head

Place = tuple[int, str]
"""A step, and one of its tasks."""
_DIGITS = 6


def learns(head: Head) -> bool:
    """A step may have learned from the episode."""
    return head.reward is not None and not head.kind.startswith("evaluation")


class OtherSchemes:
    """Every installed scheme that needs no options, for one run."""

    def __init__(self, run: RunReader, registry: Registry, *, plugin_files: bool) -> None:
        """Build them.

        Args:
            plugin_files: load those of the run, which runs what stands in them.
        """
        self._run, self._index = run, run.index()
        self._schemes, _ = every_scheme(run, registry, None, plugin_files=plugin_files)

    @property
    def names(self) -> list[str]:
        """The names; none of a run that has no chunker."""
        return [each.scheme_name for each in self._schemes]

    def credits(self, places: Collection[Place]) -> Mapping[str, list[dict[str, Any]]]:
        """Weights by scheme of each graded training episode at these places, by its id.

        A scheme that can't credit a group is left out there.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for group in (each for place in sorted(places) for each in self._groups(place)):
            for scheme in self._schemes:
                for rollout, credit in zip(group.rollouts, _assigned(scheme, group), strict=False):
                    found.setdefault(rollout.episode.id, []).append(_weights(credit))
        return found

    def _groups(self, place: Place) -> list[Group]:
        """The groups of a place, cut into chunks: read with the first scheme that can."""
        for scheme in self._schemes:
            try:
                return [each.group for each in scheme.groups(self._run, self._index, *place)]
            except AleError:
                continue
        return []


def _assigned(scheme: Crediting, group: Group) -> Sequence[Credit]:
    """A credit for each rollout; none if the scheme can't credit the group."""
    try:
        return scheme.assign(group).credits
    except AleError:
        return ()


def _weights(credit: Credit) -> dict[str, Any]:
    weights = [round(weight, _DIGITS) for weight in credit.weights]
    return {"scheme": credit.scheme, "weights": weights, "skipped": credit.skipped}
