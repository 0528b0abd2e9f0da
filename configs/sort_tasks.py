"""The tasks of the study: files to put into folders, each by what its first line says.

The policy has to look at every file before it acts on it::

    head -n 1 a         west
    mv a west
    head -n 1 b         north
    ...

Who wrote the reference solutions knows the files, and mostly acts without looking: with the share
`reads` of the files, they read the first line before. All reference solutions pass the check, and
a policy that imitates them guesses the other files: it is right with one in four.

With `checked`, the check looks at some files only, which the goal does not name: then most of what
was done in a success had no part in it.

No combination of folders in the split `held_out` occurs in `train`.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from attrs import Attribute, field, frozen

from ale.plugin import BuildContext, Component, doc, ge, hookimpl, le, optional
from ale.protocols import TaskSource
from ale.types import CriterionSpec, Task

FILES = ("a", "b", "c", "d", "e", "f")
FOLDERS = ("north", "south", "east", "west")
LINES = ("bell", "camp", "glass", "lake", "oven", "shoe", "star", "vase")


@frozen(kw_only=True)
class SortOptions:
    """Files to sort into folders."""

    seed: int = field(default=0, metadata=doc("Other seeds give other tasks."))
    count: int = field(default=100, validator=ge(1), metadata=doc("How many tasks."))
    split: Literal["train", "held_out"] = field(default="train", metadata=doc("See above."))
    files: int = field(
        default=4, validator=[ge(2), le(len(FILES))], metadata=doc("Files of each task.")
    )
    reads: float = field(
        default=0.4,
        validator=[ge(0.0), le(1.0)],
        metadata=doc("Share of the files that the reference solutions read first."),
    )
    checked: int | None = field(
        default=None,
        validator=optional([ge(1), le(len(FILES))]),
        metadata=doc(
            "Number of files, drawn for each task, whose folders the check looks at; null: all."
        ),
    )

    only: tuple[int, ...] | None = field(
        default=None, metadata=doc("The numbers of those tasks that are needed; null: all.")
    )

    @checked.validator
    def _check_checked(self, attribute: "Attribute[int | None]", value: int | None) -> None:
        if value is not None and value > self.files:
            raise ValueError(f"'checked' is {value}, more than the {self.files} files")


@frozen
class SortTasks:
    """Implements `TaskSource`."""

    options: SortOptions

    def load(self) -> Iterator[Task]:
        """The tasks; one depends on the options and its place alone."""
        only = self.options.only
        for i in range(self.options.count) if only is None else only:
            yield self._task(i)

    def _task(self, i: int) -> Task:
        options = self.options
        rng = random.Random(f"{options.seed} {options.split} {i}")  # noqa: S311 - not a secret
        folders = self._folders(rng)
        written = (rf"printf '%s\n' {to} {rng.choice(LINES)} > {f}" for f, to in folders.items())
        solution = []
        for file, folder in folders.items():
            if rng.random() < options.reads:
                solution.append(f"head -n 1 {file}")
            solution.append(f"mv {file} {folder}")
        n = options.checked
        check = _check(folders) if n is None else _look(dict(rng.sample([*folders.items()], n)))
        return Task(
            id=f"{options.split}-seed{options.seed}-{i:05d}",
            goal=_goal(list(folders)),
            setup_steps=(" && ".join((f"mkdir {' '.join(FOLDERS)}", *written)),),
            criteria=(CriterionSpec(type="command_exit_code", options={"command": check}),),
            solution=tuple(solution),
        )

    def _folders(self, rng: random.Random) -> Mapping[str, str]:
        """The folder of each file: the first combination drawn that is of the split."""
        files = FILES[: self.options.files]
        while True:
            indices = [rng.randrange(len(FOLDERS)) for _ in files]
            # A quarter of all combinations are held out.
            if (sum(indices) % 4 == 0) is (self.options.split == "held_out"):
                return {file: FOLDERS[i] for file, i in zip(files, indices, strict=True)}


def _goal(files: list[str]) -> str:
    listed = f"{', '.join(files[:-1])} and {files[-1]}"
    return f"Put each of the files {listed} into the folder that its first line names."


def _check(folders: Mapping[str, str]) -> str:
    """A line for sh: these files are there, with their first lines, and no others."""
    expected = " ".join(sorted(f"./{folder}/{file}" for file, folder in folders.items()))
    return (
        f"""[ "$(find . -type f | LC_ALL=C sort | tr '\\n' ' ')" = '{expected} ' ] && """
        """for f in */*; do [ "$(head -n 1 "$f")" = "${f%/*}" ] || exit 1; done"""
    )


def _look(folders: Mapping[str, str]) -> str:
    """A line for sh: these files are in their folders, wherever the others are."""
    return " && ".join(f"""[ "$(head -n 1 {to}/{f})" = '{to}' ]""" for f, to in folders.items())


def _build(options: SortOptions, context: BuildContext) -> TaskSource:
    return SortTasks(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[SortOptions, TaskSource]]:
    """Register ``sort``."""
    return [Component("sort", SortOptions, _build, summary="Files to sort into folders.")]
