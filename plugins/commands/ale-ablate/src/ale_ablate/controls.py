"""The controls of a config: what a claim that its policy learned has to be shown beside.

Each is an ordinary config: that of the first arm with some values replaced.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ale.errors import InputError, Problem

REWARD_BLIND, IMITATION, FROZEN = "reward-blind", "imitation", "frozen"
COOLER = (0.0, 0.3, 0.6)
"""Temperatures at which the frozen policy is decoded, beside that of training."""
_FIXED = ("tasks", "llm", "evaluation", "agent", "sandbox")
"""Sections in which arms with a common start must agree."""


@frozen(kw_only=True)
class Controls:
    """The controls of one config."""

    cells: Mapping[str, tuple[str, ...]]
    """Overrides of each control, by its name."""
    branches: bool
    """Every arm begins where the demonstrations of the first one ended; else at the beginning."""
    notes: tuple[str, ...] = ()
    """Controls that were left out, and why."""


def controls_of(config: Mapping[str, Any]) -> Controls:
    """The controls of a resolved config.

    Raises:
        InputError: it trains nothing, or does not measure what the controls are compared by.
    """
    temperature = _training_temperature(config)
    demonstrations = (config.get("starts") or {}).get("demonstrations", 0)
    cells: dict[str, tuple[str, ...]] = {REWARD_BLIND: ("credit.type=weight-one",)}
    imitated, why = _imitation(config)
    if imitated:
        cells[IMITATION] = imitated
    cells[FROZEN] = _frozen(config, temperature, demonstrations)
    notes = () if why is None else (f"no control by imitation: {why}",)
    return Controls(cells=cells, branches=demonstrations > 0, notes=notes)


def check_arms(arms: Sequence[Sequence[str]], controls: Controls) -> None:
    """Refuse arms that can't begin where the first one's demonstrations ended.

    Args:
        arms: the overrides of each.

    Raises:
        InputError: an arm has other tasks or another model than the first.
    """
    keys = {each.partition("=")[0] for arm in arms[1:] for each in arm}
    wrong = sorted(key for key in keys if key.partition(".")[0] in _FIXED)
    if controls.branches and wrong:
        message = "arms with --controls begin where the demonstrations of the first arm ended"
        expected = f"one value of each option of {', '.join(_FIXED)}"
        raise InputError(
            [Problem(message=message, file="--vary", path=key, expected=expected) for key in wrong]
        )


def _training_temperature(config: Mapping[str, Any]) -> float:
    evaluation, given = config.get("evaluation"), None
    problem = None
    if not config.get("trainer"):
        problem = ("trainer", "nothing is trained, so there is nothing to control")
    elif not evaluation:
        problem = ("evaluation", "controls are compared by success on held-out tasks")
    else:
        given = evaluation.get("temperatures")
        if given is not None and (0 not in given or len(given) < 2):
            problem = ("evaluation.temperatures", "0 and the temperature of training are compared")
    if problem is None:
        own = (config.get("llm") or {}).get("temperature")
        found = own if given is None else max(given)
        if found is not None:
            return float(found)
        problem = ("evaluation.temperatures", "the temperature of training is unknown")
    path, message = problem
    hint = {
        "evaluation": "add evaluation: {tasks: ...}",
        "evaluation.temperatures": "for example evaluation.temperatures: [0, 1]",
    }.get(path)
    raise InputError.of(message, file="--controls", path=path, hint=hint)


def _imitation(config: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """The overrides of the control by imitation; or none, and why."""
    starts, trainer = config.get("starts") or {}, config["trainer"]
    if (trainer.get("imitation") or {"when": "off"})["when"] == "off":
        return (), "the trainer imitates nothing"
    if starts.get("demonstrations", 0):
        return ("starts.after=same-demonstrations",), None
    if "expert" in starts:  # the arm sees each task's solution in every step
        return (f"starts.demonstrations={config['run']['steps']}", "starts.until=null"), None
    return (), "the config has no demonstrations"


def _frozen(config: Mapping[str, Any], temperature: float, demonstrations: int) -> tuple[str, ...]:
    listed = ", ".join(f"{each:g}" for each in sorted({*COOLER, temperature}))
    measured = f"evaluation.temperatures=[{listed}]"
    if demonstrations:
        # The step at which they ended replaces this where it was earlier.
        return (measured, f"run.steps={min(demonstrations, config['run']['steps'])}")
    once = ("run.steps=1", "run.tasks_per_step=1", "run.rollouts=1")
    none = ("run.refills=0", "run.staleness=0", "trainer=null", "starts=null")
    return (measured, *once, *none)
