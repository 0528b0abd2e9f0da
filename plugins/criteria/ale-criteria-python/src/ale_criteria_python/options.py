"""The options of ``python_tests``, as a task writes them."""

from collections.abc import Mapping
from typing import Any

from attrs import Attribute, field, frozen
from attrs.validators import min_len

from ale.plugin import doc, ge, gt
from ale_grading.answers import parsed_python, place_of_answer
from ale_grading.signed_tests import program


def _python(_: object, attribute: "Attribute[Any]", value: str | tuple[str, ...]) -> None:
    for text in (value,) if isinstance(value, str) else value:
        try:
            parsed_python(text)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"{attribute.name}: not valid Python: {error}: {text!r}") from error


def _tests(_: object, attribute: "Attribute[Any]", value: tuple[str, ...]) -> None:
    for text in value:
        if not parsed_python(text).body:
            raise ValueError(
                f"{attribute.name}: a test without code, which anything passes: {text!r}"
            )


@frozen(kw_only=True)
class PythonTestsOptions:
    """Python asserts that the agent never saw hold for the code that it wrote."""

    tests: tuple[str, ...] = field(
        validator=[min_len(1), _python, _tests],
        metadata=doc("Python code, each test run on its own: it passes if it raises nothing."),
    )
    setup: str = field(
        default="",
        validator=_python,
        metadata=doc(
            "Python code that is placed before the answer and before the tests: imports, helpers, "
            "classes that both use, or the beginning of a function that the answer continues."
        ),
    )
    names: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "Names that the tests take from the answer although the set-up or Python itself "
            "defines them. Names that nothing else defines are always taken from the answer."
        ),
    )
    answer: str = field(
        default="message",
        validator=place_of_answer,
        metadata=doc(
            "Where the code is: 'message', the last code block of the last message that has one, "
            "or 'file:NAME', a file of the workspace."
        ),
    )
    timeout_s: float = field(
        default=10.0,
        validator=gt(0),
        metadata=doc("Seconds of CPU time for each test; by the clock, eight times as many."),
    )
    total_timeout_s: float = field(
        default=60.0, validator=gt(0), metadata=doc("The same for all tests together.")
    )
    memory_mb: int = field(
        default=2048,
        validator=ge(64),
        metadata=doc("MiB of address space for each process, the tests' and the answer's."),
    )
    python: str = field(
        default="python3",
        validator=program,
        metadata=doc("Interpreter: a name in the system's folders or an absolute path."),
    )
    partial: bool = field(
        default=False,
        metadata=doc("Make the value the fraction of tests that passed instead of 0 or 1."),
    )
    env: Mapping[str, str] = field(
        factory=dict,
        metadata=doc("Variables added to the clean environment; PATH here replaces the system's."),
    )
