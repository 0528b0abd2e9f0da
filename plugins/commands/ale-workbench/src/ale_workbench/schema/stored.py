"""Schemas of the lines in a run directory, made from the records."""

import ast
import inspect
import textwrap
from typing import Any

import attrs
import msgspec

import ale.types
from ale.types import CreditedEpisode, Episode, Task

DRAFT = "https://json-schema.org/draft/2020-12/schema"

STORED: dict[str, tuple[type[Any], str]] = {
    "task": (Task, "A line of tasks.jsonl"),
    "episode": (Episode, "A line of episodes.jsonl"),
    "credited-episode": (CreditedEpisode, "A line of credits/<step>.jsonl"),
}
"""The record of each, and its title."""


def stored_schema(name: str) -> dict[str, Any]:
    """The schema of one kind of line, with the docstring of each field."""
    cls, title = STORED[name]
    version = attrs.fields_dict(cls)["schema"].default
    made = msgspec.json.schema(cls)
    for record, definition in made["$defs"].items():
        for field, text in _documented(getattr(ale.types, record)).items():
            # Next to a $ref other keys are ignored before draft 2020-12, which this is.
            definition["properties"][field]["description"] = text
    made["$defs"][cls.__name__]["properties"]["schema"] = {
        "description": "Version of the line.",
        "const": version,
        "default": version,
    }
    return {
        "$schema": DRAFT,
        "$id": f"urn:ale:{name}:{version}",
        "title": f"{title}, version {version}",
        **made,
    }


def _documented(cls: type[Any]) -> dict[str, str]:
    """The docstring of each field of a record."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for statement, after in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
            text = ast.literal_eval(after.value)
            found[ast.unparse(statement.target)] = " ".join(text.replace("``", "`").split())
    return found
