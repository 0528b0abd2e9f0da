"""The JSON Schema of a task file, made from the classes that read it.

``python -m ale_tasks_tbp.schema`` prints it; the committed copy is
docs/reference/tbp-task.schema.json.
"""

import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import attrs

from ale_tasks_tbp.rules import Rule
from ale_tasks_tbp.taskfile import REST, TaskFile

VERSION = 1
_SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of one task file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ale:tbp-task:{VERSION}",
        "title": f"TBP task file, version {VERSION}",
        **_object(TaskFile),
    }


def _object(cls: type[Any]) -> dict[str, Any]:
    fields = [field for field in attrs.fields(attrs.resolve_types(cls))]
    named = [field for field in fields if REST not in field.metadata]
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip(),
        "properties": {field.name: _property(field) for field in named},
        "required": [field.name for field in named if field.default is attrs.NOTHING],
        "additionalProperties": len(named) < len(fields),
    }


def _property(field: Any) -> dict[str, Any]:
    made = _of(field.type)
    if isinstance(field.validator, Rule):
        _merge(made, field.validator.schema)
    made["description"] = field.metadata["doc"]
    if isinstance(field.default, bool | int | float | str):
        made["default"] = field.default
    return made


def _of(type_: Any) -> dict[str, Any]:
    if type_ is Any:
        return {}
    if type_ in _SCALARS:
        return {"type": _SCALARS[type_]}
    if attrs.has(type_):
        return _object(type_)
    return _composed(get_origin(type_), get_args(type_))


def _composed(origin: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    if origin in (Union, types.UnionType):
        (member,) = [argument for argument in arguments if argument is not type(None)]
        made = _of(member)
        return {**made, "type": [made["type"], "null"]}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0])}
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {"type": "object", "additionalProperties": _of(arguments[1]) or True}
    raise TypeError(f"no schema for {origin}")


def _merge(made: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(made.get(key), dict):
            _merge(made[key], value)
        else:
            made[key] = value


def main() -> None:
    """Print the schema."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


if __name__ == "__main__":
    main()
