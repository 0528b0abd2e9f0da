"""The tables of a grid with controls."""

from collections.abc import Sequence

from ale_ablate.claims import Claim
from ale_ablate.comparing import Comparison
from ale_statistics import Estimate

Rows = tuple[list[str], list[list[str]]]
CAPTIONS = (
    "frozen: the weights that every arm begins with, decoded cooler and as in training",
    "reward-blind: the same steps with the weight 1 for every episode",
    "imitation: the demonstrations again, as many steps, and no further ones: equal supervision",
    "p: exact two-sided sign-flip test of the differences by seed; Holm: corrected for all of them",
)


def decoded(comparison: Comparison) -> Rows:
    """Success of arms and controls before and after."""
    header = ["arm or control", "decoded", "seeds", "before", "after"]
    rows = [
        [
            each.cell,
            each.how,
            str(len(each.after)),
            _share(each.mean_before),
            _share(each.mean_after),
        ]
        for each in comparison.decoded
    ]
    return header, rows


def compared(claims: Sequence[Claim]) -> Rows:
    """Each arm against each control."""
    header = ["arm", "against", "pairs", "difference", "p", "Holm"]
    rows = [
        [
            claim.arm.name,
            each.control.name,
            str(each.difference.n),
            _points(each.difference),
            p_text(each.p),
            p_text(each.corrected),
        ]
        for claim in claims
        for each in claim.compared
    ]
    return header, rows


def p_text(p: float) -> str:
    """``0.031``; ``0.0020``."""
    return f"{p:.3f}" if p >= 0.01 else f"{p:.2g}"


def _share(found: Estimate | None) -> str:
    return "-" if found is None else _with_bounds(found, ".1f", "%")


def _points(found: Estimate) -> str:
    return _with_bounds(found, "+.1f")


def _with_bounds(found: Estimate, form: str, unit: str = "") -> str:
    text = f"{100 * found.mean:{form}}{unit}"
    if found.low is None or found.high is None or found.low == found.high:
        return text
    return f"{text} ({100 * found.low:{form}} to {100 * found.high:{form}})"
