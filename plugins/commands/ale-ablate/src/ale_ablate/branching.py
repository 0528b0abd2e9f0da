"""Begin an arm where the demonstrations of the grid's first arm ended."""

from pathlib import Path

import yaml

from ale.errors import InputError
from ale.runs import RunReader, branch_run
from ale_ablate.controls import FROZEN
from ale_ablate.grid import Slot
from ale_ablate.measuring import end_of_demonstrations


def branch(slot: Slot, origin: Path) -> int:
    """Copy the first arm's run of the same seed as it was when its demonstrations had ended.

    Returns:
        The number of steps that the copy has.

    Raises:
        InputError: the demonstrations ended with the last step, or the config can't be continued.
        StoreError: the copy can't be written.
    """
    steps = end_of_demonstrations(RunReader(origin))
    config = yaml.safe_load(slot.grid.config(slot.cell).read_text(encoding="utf-8"))
    run = config["run"]
    frozen = slot.cell.control == FROZEN
    if steps is None or (steps >= run["steps"] and not frozen):
        message = "no step follows the demonstrations, so there is nothing to compare"
        hint = "raise run.steps, or lower starts.demonstrations"
        raise InputError.of(message, file=str(origin), hint=hint)
    run |= {"seed": slot.seed, "name": slot.name, "directory": str(slot.folder)}
    if frozen:
        run["steps"] = steps
    # The name of the original begins with its time.
    target = slot.folder / f"{origin.name}-{slot.number:02d}"
    branch_run(origin, target, steps=steps, config=config, evaluated=not frozen)
    return steps
