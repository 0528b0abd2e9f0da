"""The credit of an episode under other schemes: those asked for, and for copies all installed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ale.errors import AleError, InputError, Problem
from ale.runs import Crediting, Registry, RunReader
from ale.types import Credit, Episode, Group
from ale_look.inspect.against import every_scheme
from ale_look.inspect.recrediting import creditings
from ale_look.inspect.report.gathering import Head

Place = tuple[int, str]
"""A step, and one of its tasks."""
_DIGITS = 6


def learns(head: Head) -> bool:
    """A step may have learned from the episode."""
    return head.reward is not None and not head.kind.startswith("evaluation")


def credit_under(
    run: RunReader, episode: Episode, step: int, names: Sequence[str], registry: Registry
) -> list[dict[str, Any]]:
    """The weights of an episode's chunks under each scheme of these, or why there are none.

    The plugin files of the run's config are not loaded: to look at a run must not run what stands
    in them.

    Args:
        step: the one that learned from it.
    """
    index, rows = run.index(), list[dict[str, Any]]()
    group: Group | None = None
    for name in names:
        try:
            (scheme,) = creditings(run, [name], registry, plugin_files=False)
            if group is None:
                found = [each.group for each in scheme.groups(run, index, step, episode.task_id)]
                group = next((each for each in found if _place(each, episode) is not None), None)
            if group is None:
                raise InputError.of("the episode is in no group of its step")
            credit = scheme.assign(group).credits[_place(group, episode) or 0]
        except AleError as error:
            rows.append({"scheme": name, "refused": _in_page_words(error)})
        else:
            skipped = credit.skipped
            rows.append({"scheme": name, "weights": credit.weights, "skipped": skipped})
    return rows


def _place(group: Group, episode: Episode) -> int | None:
    ids = [rollout.episode.id for rollout in group.rollouts]
    return ids.index(episode.id) if episode.id in ids else None


def _in_page_words(error: AleError) -> str:
    """Why a scheme is refused, without what is of the command line."""
    problems = error.problems if isinstance(error, InputError) else ()
    return "; ".join(map(_said, problems)) or str(error)


def _said(problem: Problem) -> str:
    _, _, option = (problem.path or "").partition("credit.")
    parts = [problem.message if option in ("", "type") else f"{option}: {problem.message}"]
    if problem.expected is not None:
        parts.append(f"expected {problem.expected}")
    if problem.hint is not None and not problem.hint.startswith("--"):
        parts.append(problem.hint)
    return "; ".join(parts)


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
