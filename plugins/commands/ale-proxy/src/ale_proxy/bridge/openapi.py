"""The OpenAPI document of the bridge, made from the table that its routes are made of."""

import re
from importlib.metadata import version
from typing import Any

import msgspec

from ale_proxy.bridge.forms import Error
from ale_proxy.bridge.operations import LONGEST_WAIT_S, OPERATIONS, Operation

_REF = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    forms = {form for each in OPERATIONS for form in (each.form, *each.replies.values()) if form}
    types = sorted({*forms, Error}, key=str)
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ale workers bridge",
            "version": version("ale-proxy"),
            "description": "Managers assign tasks and grade results; workers take and answer them.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                role: {"type": "http", "scheme": "bearer", "description": f"The {role}s' key."}
                for role in ("manager", "worker")
            },
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    answers = {
        str(status): {"description": "Done.", **_content(form)}
        for status, form in operation.replies.items()
    }
    errors = {
        str(status): {"description": meaning, **_content(Error)}
        for status, meaning in operation.statuses.items()
    }
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_in_path(operation), *_in_query(operation)],
        "responses": {**answers, **errors},
    }
    if operation.form is not None:
        made["requestBody"] = {"required": True, **_content(operation.form)}
    if operation.role != "anybody":
        # Without --key-env no key is asked for.
        roles = ["manager", *(["worker"] if operation.role == "worker" else [])]
        made["security"] = [{}, *({role: []} for role in roles)]
    return made


def _content(form: type[msgspec.Struct] | None) -> dict[str, Any]:
    if form is None:
        return {}
    return {"content": {"application/json": {"schema": {"$ref": _REF.format(name=form.__name__)}}}}


def _in_path(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _in_query(operation: Operation) -> list[dict[str, Any]]:
    if not operation.waits:
        return []
    seconds = {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S, "default": 0}
    return [{"name": "wait_s", "in": "query", "required": False, "schema": seconds}]
