"""A docstring begins with its subject: not with "Of", "Those that", "What" or "None:"."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BEGINNING = re.compile(r"(Of|Those that|What)\s|None:")
LEFT = {
    "ale-ablate": 13,
    "ale-agent-attempts": 6,
    "ale-agent-iflow": 5,
    "ale-agent-swe": 3,
    "ale-bench": 2,
    "ale-criteria-python": 12,
    "ale-grading": 7,
    "ale-launch": 6,
    "ale-llm-litellm": 1,
    "ale-llm-openai": 1,
    "ale-llm-policy": 3,
    "ale-loop": 8,
    "ale-middleware": 5,
    "ale-nats": 7,
    "ale-nats-client": 2,
    "ale-observe-audit": 6,
    "ale-openai-wire": 4,
    "ale-processes": 1,
    "ale-proxy": 59,
    "ale-ray": 5,
    "ale-sandbox-bubblewrap": 14,
    "ale-sandbox-cwsandbox": 4,
    "ale-sandbox-docker": 7,
    "ale-sandbox-e2b": 3,
    "ale-sandbox-local": 1,
    "ale-sandbox-podman": 5,
    "ale-sandboxing": 80,
    "ale-servers": 14,
    "ale-serving": 2,
    "ale-sglang": 1,
    "ale-slurm": 2,
    "ale-tasks-benchmarks": 2,
    "ale-tasks-swe": 11,
    "ale-trackers": 1,
    "ale-trainer-policy": 10,
    "ale-trainer-trl": 2,
    "ale-training": 2,
    "ale-vllm": 1,
    "ale-workbench": 7,
}
"""Packages with docstrings that still begin so, and how many. Numbers only fall."""


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings, and texts below a field or a constant, each with its line."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] == "core" else parts[2]


def found() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for path in sorted([*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/*/src/**/*.py")]):
        for line, text in texts(ast.parse(path.read_text())):
            if BEGINNING.match(text):
                place = f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
                places.setdefault(package_of(path), []).append(place)
    return places


def test_a_docstring_begins_with_its_subject() -> None:
    places = found()
    more = {name: each for name, each in places.items() if len(each) > LEFT.get(name, 0)}
    shown = "\n".join(place for each in more.values() for place in each)
    assert not more, f"say what it is, subject first:\n{shown}"


def test_what_is_left_is_not_more_than_there_is() -> None:
    numbers = Counter({name: len(each) for name, each in found().items()})
    assert {name: n for name, n in LEFT.items() if n > numbers[name]} == {}, "lower the numbers"
