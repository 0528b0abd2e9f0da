"""The interval of a mean over tasks."""

from ale.text import wilson


def interval(mean: float, tasks: int) -> tuple[float, float] | None:
    """95% interval for a mean over tasks of values in [0, 1], each task one independent trial.

    The variance of such values is at most that of passes and failures with the same mean, so
    Wilson's interval is conservative.

    Returns:
        Bounds in [0, 1]; None for fewer than two tasks.

    Source: Wilson (1927), Probable inference, J. Am. Stat. Assoc. 22.
    """
    return wilson(mean * tasks, tasks) if tasks >= 2 else None
