"""The JSON Schemas of the rows, made from their classes.

``python -m ale_rows.schemas FOLDER`` writes them; the committed copies are in docs/reference.
"""

import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ale_rows.rows import KINDS, MADE_BY, SCHEMA

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schemas() -> Mapping[str, dict[str, Any]]:
    """The schema of each kind of row, by the name of its file."""
    return {f"rows-{kind}.schema.json": _schema(kind) for kind in KINDS}


def _schema(kind: str) -> dict[str, Any]:
    made = _steady(msgspec.json.schema(KINDS[kind]))
    return {
        "$schema": DRAFT,
        "$id": f"urn:ale:rows-{kind}:{SCHEMA}",
        "title": f"A row that `{MADE_BY[kind]}` writes, version {SCHEMA}",
        **made,
    }


def _steady(schema: Any) -> Any:
    """The same schema from every version of msgspec.

    They differ in the indentation of descriptions, in whether a default that is empty is given,
    and in the order of alternatives.
    """
    if isinstance(schema, list):
        return [_steady(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _steady(value) for key, value in schema.items()}
    if isinstance(kept.get("description"), str):
        kept["description"] = inspect.cleandoc(kept["description"])
    if kept.get("default") in ({}, []):
        del kept["default"]
    if "anyOf" in kept:
        kept["anyOf"].sort(key=json.dumps)
    return kept


def main() -> None:
    """Write the schemas into the folder that the command names."""
    for name, schema in json_schemas().items():
        Path(sys.argv[1], name).write_text(json.dumps(schema, indent=2) + "\n")


if __name__ == "__main__":
    main()
