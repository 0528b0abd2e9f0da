"""Metadata of a sandbox: what it is for, and which process holds it."""

import json
from collections.abc import Mapping
from typing import Any

from ale_sandboxing.remote.owners import names_of
from ale_sandboxing.remote.service import Request

MARK = {"ale-sandbox": "1"}
"""On every sandbox of `ale`."""
_TAGS = "ale-tags"
OWNER = "ale-owner"
"""Key of the process that holds it, as in the request."""
ID = "ale-id"
"""Key of the request's id."""


def metadata_of(own: Mapping[str, str], request: Request) -> dict[str, str]:
    """All metadata: `own`, ``job`` and ``problem``, and what finds the sandbox again."""
    found_by = {ID: request.id, OWNER: request.owner, _TAGS: json.dumps(dict(request.tags))}
    return {**own, **names_of(request.tags), **MARK, **found_by}


def tags_of(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The tags of the request that a sandbox was made for."""
    tags: Any = json.loads(metadata.get(_TAGS, "{}"))
    return {str(key): str(value) for key, value in tags.items()}
