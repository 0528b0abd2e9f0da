"""``ale show forks``: success curves as text."""

from ale.errors import InputError, nearest
from ale.text import counted, shorten, table
from ale_figures.forks import Curve, Curves, Fork

_MAX_TEXT = 60


def check_task(found: Curves, task_id: str) -> None:
    """Raise `InputError` if there are no episodes of this task."""
    names = {*found.beginnings, *(curve.task_id for curve in found.curves)}
    if task_id not in names:
        message = f"no graded episode of a task '{task_id}' among those of {len(names)} tasks"
        raise InputError.of(message, path="--task", hint=nearest(task_id, sorted(names)))


def forks_table(found: Curves, *, level: float, task_id: str | None = None) -> str:
    """A table per expert, with a legend."""
    chosen = [curve for curve in found.curves if task_id in (None, curve.task_id)]
    parts = [_curve(curve) for curve in chosen]
    with_curve = {curve.task_id for curve in found.curves}
    plain = [one for one in found.beginnings if one not in with_curve and task_id in (None, one)]
    notes = []
    if chosen:
        notes += [
            "after p: rollouts that started after the expert's first p turns; 0 is the task's own "
            "beginning.",
            f"crucial: success before is lower than after, by Fisher's exact test, one-sided, at "
            f"{level:g} over all forks of a table (Holm); harmful: likewise, higher.",
            "Counts are pooled over training steps, so over versions of the policy.",
        ]
    if plain:
        notes.append(f"Started at their own beginning only: {counted(len(plain), 'task')}.")
    if found.other:
        notes.append(
            f"Left out: {counted(found.other, 'episode')} of other starts, such as demonstrations."
        )
    if not chosen:
        notes.insert(0, "No rollout started inside an expert's episode.")
    return "\n\n".join([*parts, "\n".join(notes)])


def _curve(curve: Curve) -> str:
    tag = f" {curve.tag}" if curve.tag else ""
    rows = []
    for number, point in enumerate(curve.points):
        low, high = point.interval
        fork = curve.forks[number] if number < len(curve.forks) else None
        rows.append(
            [
                str(point.p),
                f"{point.successes} of {point.trials}",
                f"{100 * point.successes / point.trials:.0f}%",
                f"{100 * low:.0f} to {100 * high:.0f}",
                "" if fork is None else f"{_p_value(fork):.2g}",
                "" if fork is None else _mark(fork),
                shorten(_next(curve, number), _MAX_TEXT),
            ]
        )
    header = ["after p", "success", "rate", "95%", "p-value", "fork", "the expert's next"]
    title = f"{curve.task_id}, expert{tag} of {curve.turns} turns"
    return f"{title}\n{table(header, rows, right=(0, 1, 2, 3, 4))}"


def _p_value(fork: Fork) -> float:
    return fork.p_harm if fork.harmful else fork.p_value


def _mark(fork: Fork) -> str:
    return "harmful" if fork.harmful else "crucial" if fork.crucial else ""


def _next(curve: Curve, number: int) -> str:
    """The expert's actions from this point to the next, as far as they were replayed."""
    p = curve.points[number].p
    last = number + 1 == len(curve.points)
    until = p + 1 if last else curve.points[number + 1].p
    return "; ".join(curve.replayed[turn] for turn in range(p, until) if turn in curve.replayed)
