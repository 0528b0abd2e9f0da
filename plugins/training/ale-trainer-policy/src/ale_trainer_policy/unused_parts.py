"""Refuses parts of an objective that contradict each other, or that nothing uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ale_trainer_policy.options import ObjectiveOptions, ObjectiveParts

_USED_BY = (
    (("clip_low", "clip_high"), ("positive", "negative"), ("clip", "bound")),
    (("mask_threshold", "mask_floor"), ("mask",), ("token", "chunk", "trajectory")),
    (("normaliser_constant",), ("normaliser",), ("constant",)),
)
"""Parts, the parts that decide whether they are used, and the values of these that use them."""


def check_parts(given: ObjectiveOptions, parts: ObjectiveParts) -> None:
    """Check what was given against the objective that it makes of its preset.

    Raises:
        ValueError: a mask without a range, or a number that no part of the preset uses. If the part
            that would use it is given too, it may be unused, as in the cells of an ablation.
    """
    low, high = parts.mask_floor, parts.mask_threshold
    if low is not None and high is not None and low > high:
        raise ValueError(f"'mask_floor' is {low:g}, above 'mask_threshold', which is {high:g}")
    for names, chosen_by, values in _USED_BY:
        if _gives(given, chosen_by) or any(getattr(parts, name) in values for name in chosen_by):
            continue
        if found := _gives(given, names):
            wanted = f"{' or '.join(chosen_by)}: {' or '.join(values)}"
            message = f"'{found[0]}' is without effect in {given.preset}: it needs {wanted}"
            raise ValueError(message)


def _gives(given: ObjectiveOptions, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(given, name) is not None]
