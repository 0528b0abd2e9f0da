"""JSON Schemas of configs and of what stands in a run directory, as ``ale schema`` prints them."""

import json
from collections.abc import Mapping
from pathlib import Path

from ale._registry import Registry
from ale_schema.catalogue import made
from ale_schema.stored import STORED

NAMES = ("config", *STORED)


def pages(registry: Registry, root: Path) -> Mapping[str, str]:
    """One file per schema; those of rows of data sets are committed."""
    return {
        f"schemas/{name}.schema.json": json.dumps(made(name, registry), indent=2) + "\n"
        for name in NAMES
    }
