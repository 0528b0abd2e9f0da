"""The JSON Schemas of the rows, made from their classes.

``python -m ale_rows.schemas FOLDER`` writes them; the committed copies are in docs/reference.
"""

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
    made = msgspec.json.schema(KINDS[kind])
    return {
        "$schema": DRAFT,
        "$id": f"urn:ale:rows-{kind}:{SCHEMA}",
        "title": f"A row that `{MADE_BY[kind]}` writes, version {SCHEMA}",
        **made,
    }


def main() -> None:
    """Write the schemas into the folder that the command names."""
    for name, schema in json_schemas().items():
        Path(sys.argv[1], name).write_text(json.dumps(schema, indent=2) + "\n")


if __name__ == "__main__":
    main()
