"""Refuse to sample again what an earlier policy has sampled.

A run directory that was copied while the run was writing, or restored from a backup, may hold newer
checkpoints than episodes. The newest policy would then sample the missing episodes, and they would
be stored and reported as those of the earlier one.
"""

from collections.abc import Iterator

from ale._run.plan import EpisodePlan
from ale._run.session import Session
from ale.errors import InputError
from ale.protocols import Policy
from ale.text import counted


def refuse_lost(session: Session, version: int, plans: Iterator[EpisodePlan]) -> None:
    """Raise `InputError` if episodes are missing whose policy the trainer no longer has.

    Args:
        version: number of steps that the policy of these episodes had learned from. With staleness
            it may have been fewer.
    """
    store, parts = session.store, session.parts
    learned = store.checkpoints.newest() + 1
    if parts.trainer is None or not isinstance(parts.llm, Policy) or version >= learned:
        return
    missing = (plan.job.id for plan in plans if plan.key not in store.index)
    first = next(missing, None)
    if first is None:
        return
    number = counted(1 + sum(1 for _ in missing), "episode")
    raise InputError.of(
        f"lacks {number} of the policy after {counted(version, 'step')}, such as {first}; that "
        f"policy is gone: the newest checkpoint is after {counted(learned, 'step')}",
        file=str(store.path / "episodes.jsonl"),
        hint="restore the file, for example from where the run was copied; or move 'checkpoints' "
        "away: the policy learns again from the episodes that are left, and samples the others",
    )
