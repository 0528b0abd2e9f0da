"""JSON Schemas of what stands in a run directory, from the records themselves."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import ale.types
from ale._registry import Registry
from ale.types import CreditedEpisode, Episode, Task
from ale_reference.records import fields

STORED = {"task": Task, "episode": Episode, "credited-episode": CreditedEpisode}


def pages(registry: Registry, root: Path) -> Mapping[str, str]:
    """One schema per kind of line."""
    return {
        f"schemas/{name}.schema.json": json.dumps(schema(cls), indent=2) + "\n"
        for name, cls in STORED.items()
    }


def schema(cls: type) -> dict[str, Any]:
    """The schema of a record, with what its source says of each field."""
    made = msgspec.json.schema(cls)
    for name, definition in made["$defs"].items():
        for field in fields(getattr(ale.types, name)):
            if field.doc:
                described = definition["properties"][field.name]
                text = " ".join(field.doc.replace("``", "`").split())
                # Beside a $ref other keys are ignored before draft 2020-12, which this is.
                described["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
