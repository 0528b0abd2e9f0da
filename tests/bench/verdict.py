"""What one of two says of a task, and both in one table."""

from collections.abc import Mapping

from attrs import frozen


@frozen(kw_only=True)
class Verdict:
    """Of one task, by one of the two."""

    reward: float | None
    """None where there was no verdict."""
    cause: str = ""

    def __str__(self) -> str:
        shown = "-" if self.reward is None else f"{self.reward:g}"
        return f"{shown} {self.cause}".strip()


def compared(
    theirs: Mapping[str, Verdict], ours: Mapping[str, Verdict], argued: Mapping[str, str]
) -> int:
    """Print the table; how many tasks differ without an argument.

    No verdict counts as 0, as it does in the harness's mean. Where only one has none, the mark says
    ``as 0``.
    """
    wrong = alike = 0
    none = Verdict(reward=None, cause="(not run)")
    for task in sorted({*theirs, *ours}):
        one, other = theirs.get(task, none), ours.get(task, none)
        if task not in theirs:
            print(f"{task:28}  {'(not run)':34}  {'':8}{other}")
            continue
        same = task in ours and (one.reward or 0.0) == (other.reward or 0.0)
        alike += same
        wrong += not same and task not in argued
        exact = "same" if one.reward == other.reward else "as 0"
        mark = exact if same else "argued" if task in argued else "DIFFERS"
        print(f"{task:28}  {one!s:34}  {mark:8}{other}")
    print(f"{alike} of {len(theirs)} alike, {wrong} differ without an argument")
    return wrong
