"""Shell tasks made from a seed: one to ten dependent commands each, with held-out splits."""

from collections.abc import Iterator


def corpus(
    seed: int,
    n: int,
    *,
    length: int | tuple[int, int] = (1, 4),
    kinds: tuple[str, ...] = (),
    words: int = 64,
) -> Iterator[str]:
    """Text of the family to train a tokenizer on: of `n` training tasks, one at a time.

    Args:
        seed: as the option; so are `length`, `kinds` and `words`.
        n: how many tasks, at least 1.

    Returns:
        For each task its goal and the commands of its reference solution, one a line. After some
        thousand tasks every sentence, command and word of the family is likely to be included.

    Raises:
        ValueError: an option is not allowed.
        InputError: the kinds can't make a task of this length.
    """
    from ale_tasks_shell.options import ShellTasksOptions  # late: importing a package stays cheap
    from ale_tasks_shell.source import ShellTasks

    options = ShellTasksOptions(seed=seed, count=n, length=length, kinds=kinds, words=words)
    for task in ShellTasks(options).load():
        yield "\n".join((task.goal, *(task.solution or ()))) + "\n"
