"""The tasks of ``quickstart.yaml``: find a file, read its first line, and act on both.

Each of four files has its own lines; one of them has the word that the goal names. To rename it,
the policy has to find it and to read its first line::

    grep -l barn *      the file with the word: c
    head -n 1 c         new or old
    mv c ring           or, if it is old: mv c old

Who wrote the files knows the answer without looking, as authors of reference solutions do. The
share `looks` of the reference solutions runs the first command, and the share `reads` of these the
second; the others go straight to the file. All of them pass the check.

The pairs of words in the split `held_out` do not occur in `train`; every word occurs in both.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Literal

from attrs import field, frozen

from ale.plugin import BuildContext, Component, doc, ge, hookimpl, le
from ale.protocols import TaskSource
from ale.types import CriterionSpec, Task

FILES = ("a", "b", "c", "d")
WORDS = ("barn", "coin", "fork", "horse", "jar", "knife", "mask", "ring")
NAMES = ("bag", "cliff", "doll", "egg", "kite", "moon", "pond", "seed")
LINES = ("bell", "camp", "glass", "lake", "oven", "shoe", "star", "vase")
GOAL = (
    "One of the files a, b, c and d has the word {word}. "
    "Rename it to {name}, or to old if its first line is old."
)


@frozen(kw_only=True)
class FindOptions:
    """Files to find by a word, and to rename."""

    seed: int = field(default=0, metadata=doc("Other seeds give other tasks."))
    count: int = field(default=100, validator=ge(1), metadata=doc("How many tasks."))
    split: Literal["train", "held_out"] = field(default="train", metadata=doc("See above."))
    looks: float = field(
        default=0.2,
        validator=[ge(0.0), le(1.0)],
        metadata=doc("Share of the reference solutions that look for the file."),
    )
    reads: float = field(
        default=0.6,
        validator=[ge(0.0), le(1.0)],
        metadata=doc("Share of these that read its first line, too."),
    )


@frozen
class FindTasks:
    """Implements `TaskSource`."""

    options: FindOptions

    def load(self) -> Iterator[Task]:
        """The tasks; one depends on the options and its place alone."""
        for i in range(self.options.count):
            yield self._task(i)

    def _task(self, i: int) -> Task:
        options = self.options
        rng = random.Random(f"{options.seed} {options.split} {i}")  # noqa: S311 - not a secret
        word, name = rng.choice(pairs(options.split))
        found = rng.choice(FILES)
        files = {file: [rng.choice(("new", "old")), *rng.sample(LINES, 2)] for file in FILES}
        files[found][rng.choice((1, 2))] = word
        target = "old" if files[found][0] == "old" else name
        solution = [f"mv {found} {target}"]
        if rng.random() < options.looks:
            read = [f"head -n 1 {found}"] if rng.random() < options.reads else []
            solution = [f"grep -l {word} *", *read, *solution]
        after = {target if file == found else file: lines for file, lines in files.items()}
        return Task(
            id=f"{options.split}-seed{options.seed}-{i:05d}",
            goal=GOAL.format(word=word, name=name),
            setup_steps=(" && ".join(_written(file, lines) for file, lines in files.items()),),
            criteria=(CriterionSpec(type="command_exit_code", options={"command": _check(after)}),),
            solution=tuple(solution),
        )


def pairs(split: str) -> Sequence[tuple[str, str]]:
    """The pairs of a split: a quarter of all are held out, of every word a quarter."""
    return [
        (word, name)
        for i, word in enumerate(WORDS)
        for j, name in enumerate(NAMES)
        if ((i + j) % 4 == 0) is (split == "held_out")
    ]


def _written(file: str, lines: Sequence[str]) -> str:
    return rf"printf '%s\n' {' '.join(lines)} > {file}"


def _check(files: dict[str, list[str]]) -> str:
    """A line for sh: these files are there, with these lines, and no others."""
    expected = "\n".join(f"{file}:{line}" for file in sorted(files) for line in files[file])
    return f"""[ "$(grep -H '' *)" = '{expected}' ]"""


def _build(options: FindOptions, context: BuildContext) -> TaskSource:
    return FindTasks(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[FindOptions, TaskSource]]:
    """Register ``find``."""
    return [Component("find", FindOptions, _build, summary="A file to find, read and rename.")]
