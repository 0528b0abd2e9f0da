"""Measures what skills were worth, accepts proposals that help, and retires what does not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ale.runs import RunReader
from ale.types import Episode
from ale_figures.statistics import Estimate
from ale_middleware.skills.store import Evidence, Skill, Store, identity_of, name_of


class Reviewed(NamedTuple):
    """One skill after a review."""

    skill: Skill
    worth: Estimate | None
    verdict: str


def review(runs: Sequence[Path], store: Store, *, pairs: int = 10) -> list[Reviewed]:
    """Store what the runs say about each skill, accept what helps, and retire what does not.

    A group is the rollouts of one task in one step; where some of them had the skill and others
    not, the difference of their mean rewards is one pair. A skill with `pairs` of them or more
    whose 95% interval is not above 0 is retired; a proposal whose interval is, is accepted.
    Reviewing a run again changes nothing. A copy that a loop took of an episode counts with the run
    that it is of, where both are reviewed.

    Raises:
        InputError: a run can't be read.
        StoreError: the store can't be written.
    """
    readers = {name_of(reader): reader for reader in map(RunReader, runs)}
    for run, reader in readers.items():
        others = readers.keys() - {run}
        own = (each for each in reader.episodes if identity_of(run, each)[0] not in others)
        found = differences(own)
        for skill in store.skills(retired=True):
            store.set_evidence(skill.id, run, found.get(skill.id, ()))
    return [_judged(skill, store, pairs) for skill in store.skills()]


def _judged(skill: Skill, store: Store, pairs: int) -> Reviewed:
    worth = store.worth(skill.id)
    if worth is None or worth.n < pairs:
        return Reviewed(skill, worth, "not measured enough")
    if worth.low is not None and worth.low > 0:
        if skill.pending:
            store.accept(skill.id, f"measured: {worth.mean:+z.3f} in {worth.n} pairs")
        return Reviewed(skill, worth, "helps")
    reason = f"not shown to help: {worth.mean:+z.3f} in {worth.n} pairs"
    store.retire(skill.id, reason)
    return Reviewed(skill, worth, "retired")


def differences(episodes: Iterable[Episode]) -> Mapping[str, list[Evidence]]:
    """By skill: the difference in each group in which some rollouts had it and others not."""
    rewards: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for episode in episodes:
        if episode.reward is None or episode.split != "train":
            continue
        part = f"{episode.step}/{episode.task_id}/{episode.start}"
        for skill, given in _skills_of(episode):
            without, with_it = rewards.setdefault((skill, part), ([], []))
            (with_it if given else without).append(episode.reward)
    found: dict[str, list[Evidence]] = {}
    for (skill, part), (without, with_it) in rewards.items():
        if without and with_it:
            difference = sum(with_it) / len(with_it) - sum(without) / len(without)
            found.setdefault(skill, []).append(Evidence(part=part, difference=difference))
    return found


def _skills_of(episode: Episode) -> Iterator[tuple[str, bool]]:
    """The skills that fitted an episode's task, and whether it was given each."""
    for facts in episode.metadata.get("middleware", ()):
        if facts.get("type") == "skills":
            for entry in facts["skills"]:
                yield entry["id"], entry["given"]
