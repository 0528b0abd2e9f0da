"""All schemas, by name."""

from collections.abc import Mapping
from typing import Any

from ale.errors import InputError
from ale.runs import Registry
from ale.strict import nearest
from ale_rows.schemas import json_schemas
from ale_workbench.schema.config import TITLE, config_schema
from ale_workbench.schema.stored import STORED, stored_schema

_SUFFIX = ".schema.json"


def catalogue() -> Mapping[str, str]:
    """The title of each schema, by its name."""
    named = {"config": TITLE} | {name: title for name, (_, title) in STORED.items()}
    return named | {name: made["title"] for name, made in _rows().items()}


def made(name: str, registry: Registry) -> dict[str, Any]:
    """The schema of this name.

    Args:
        registry: the packages whose options a config may have.

    Raises:
        InputError: there is none.
    """
    if name == "config":
        return config_schema(registry)
    if name in STORED:
        return stored_schema(name)
    rows = _rows()
    if name not in rows:
        known = list(catalogue())
        raise InputError.of(
            f"there is no schema '{name}'",
            path="NAME",
            expected="one of " + ", ".join(known),
            hint=nearest(name, known),
        )
    return rows[name]


def _rows() -> dict[str, dict[str, Any]]:
    return {name.removesuffix(_SUFFIX): schema for name, schema in json_schemas().items()}
