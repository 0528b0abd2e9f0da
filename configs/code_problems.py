"""Small problems in the form of MBPP, made from a seed, to try a training on a laptop.

The task source `code-problems` gives them to ``code_rewards.yaml``. As lines of MBPP's file, for
`ale art train`, they are in ``code_problems.jsonl``; another seed makes others::

    python configs/code_problems.py --seed 1 > problems.jsonl

Each asks for a function of two numbers, by one of several phrases in one of several frames. All
phrases and frames occur in the split `train`; pairs of them in the split `test` do not occur there.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from ale.plugin import BuildContext, Component, doc, hookimpl
from ale.protocols import TaskSource
from ale.types import CriterionSpec, Task

TARGET = Path(__file__).with_suffix(".jsonl")

OPERATIONS = {
    "a + b": ("add", "sum up", "find the sum of", "get the total of"),
    "a - b": ("subtract", "find the difference of", "take the second from the first of"),
    "a * b": ("multiply", "find the product of", "scale one by the other of"),
    "max(a, b)": ("find the maximum of", "get the larger of", "choose the greatest of"),
    "min(a, b)": ("find the minimum of", "get the smaller of", "choose the least of"),
    "a == b": ("check the equality of", "tell whether we have twice the same in"),
}
FRAMES = (
    "Write a function to {} two numbers.",
    "Write a python function f to {} two given numbers.",
    "Write code to {} its arguments.",
    "Please {} the numbers a and b.",
    "Given a and b, {} them.",
    "How do I {} a pair?",
    "I need to {} the two values.",
    "Let f {} a and b.",
)
FIRST_ID = {"test": 11, "train": 601}
"""The first id of a split of MBPP."""


def answer(expression: str) -> str:
    """The code of a solution."""
    return f"def f(a, b):\n    return {expression}"


def problem(number: int, expression: str, text: str, rng: random.Random) -> dict[str, Any]:
    """A line of the file; the tests tell the operations apart."""
    pairs = [(2, 5), (7, 3), (4, 4)]
    rng.shuffle(pairs)
    value = eval(f"lambda a, b: {expression}")  # noqa: S307 - of the table above
    return {
        "task_id": number,
        "text": text,
        "code": answer(expression),
        "test_list": [f"assert f({a}, {b}) == {value(a, b)}" for a, b in pairs],
        "test_setup_code": "",
        "challenge_test_list": [],
    }


def problems(seed: int, held_out: int) -> Iterator[dict[str, Any]]:
    """Every pair of phrase and frame once; `held_out` of them in the split `test`."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    asked = [
        (expression, frame.format(phrase))
        for expression, phrases in OPERATIONS.items()
        for phrase in phrases
        for frame in FRAMES
    ]
    rng.shuffle(asked)
    for i, (expression, text) in enumerate(asked):
        split, index = ("test", i) if i < held_out else ("train", i - held_out)
        yield problem(FIRST_ID[split] + index, expression, text, rng)


def text(seed: int = 0, held_out: int = 36) -> str:
    """The lines of a file."""
    return "".join(json.dumps(made) + "\n" for made in problems(seed, held_out))


@frozen(kw_only=True)
class ProblemsOptions:
    """Problems whose goal is a sentence; the first test is shown where it fails."""

    split: Literal["train", "test"] = field(default="train", metadata=doc("See above."))
    seed: int = field(default=0, metadata=doc("Of the problems."))
    held_out: int = field(default=36, metadata=doc("Problems in the split test."))


@frozen
class Problems:
    """Implements `TaskSource`."""

    options: ProblemsOptions

    def load(self) -> Iterator[Task]:
        """The problems of the split."""
        for made in problems(self.options.seed, self.options.held_out):
            if (made["task_id"] >= FIRST_ID["train"]) == (self.options.split == "train"):
                yield Task(
                    id=f"mbpp-{made['task_id']}",
                    goal=made["text"],
                    criteria=(
                        CriterionSpec(type="python_tests", options={"tests": made["test_list"]}),
                    ),
                    metadata={"python": {"visible_tests": made["test_list"][:1]}},
                )


def _build(options: ProblemsOptions, context: BuildContext) -> TaskSource:
    return Problems(options)


@hookimpl
def ale_task_sources() -> Sequence[Component[ProblemsOptions, TaskSource]]:
    """Register ``code-problems``."""
    return [
        Component("code-problems", ProblemsOptions, _build, summary="Functions of two numbers.")
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Print problems in the form of MBPP.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=int, default=36, help="problems in the split test")
    given = parser.parse_args()
    print(text(given.seed, given.held_out), end="")


if __name__ == "__main__":
    main()
