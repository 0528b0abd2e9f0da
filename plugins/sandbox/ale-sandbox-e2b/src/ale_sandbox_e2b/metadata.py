"""Metadata of a sandbox: what it is for, and which process holds it."""

import json
from collections.abc import Mapping
from typing import Any

from ale_sandbox_remote.owners import names_of
from ale_sandbox_remote.service import Request

MARK = {"ale-sandbox": "1"}
"""On every sandbox of `ale`."""
_TAGS = "ale-tags"
_OWNER = "ale-owner"
_ID = "ale-id"


def metadata_of(own: Mapping[str, str], request: Request) -> dict[str, str]:
    """All metadata: `own`, ``job`` and ``problem``, and what finds the sandbox again."""
    found_by = {_OWNER: request.owner, _TAGS: json.dumps(dict(request.tags))}
    return {**own, **names_of(request.tags), **MARK, **of_request(request.id), **found_by}


def of_request(id: str) -> dict[str, str]:
    """What the sandbox of one request alone has."""
    return {_ID: id}


def tags_of(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The tags of the request that a sandbox was made for."""
    tags: Any = json.loads(metadata.get(_TAGS, "{}"))
    return {str(key): str(value) for key, value in tags.items()}


def owner_of(metadata: Mapping[str, str]) -> str | None:
    """The process that holds it, as in the request."""
    return metadata.get(_OWNER)
