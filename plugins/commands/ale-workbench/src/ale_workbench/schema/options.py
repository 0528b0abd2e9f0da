"""The schema of an options class, which accepts what `ale.strict` reads.

It is in two parts, allowed and required values: a config that extends another may have a part of
what is required, and the other file the rest.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from attrs import validators

from ale.strict import NameOrPath

Schema = dict[str, Any]

_TEXTS: Mapping[Any, str] = dict.fromkeys((str, Path, NameOrPath), "string")
_SCALARS: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", **_TEXTS}
_BOUNDS = {
    ">=": "minimum",
    ">": "exclusiveMinimum",
    "<=": "maximum",
    "<": "exclusiveMaximum",
}


def properties(cls: type[Any]) -> dict[str, Schema]:
    """The allowed values of each option."""
    return {field.name: _property(field) for field in _fields(cls)}


def needs(cls: type[Any]) -> Schema:
    """The required options; empty if there are none."""
    required = [field.name for field in _fields(cls) if field.default is attrs.NOTHING]
    inner = {field.name: _needs(field.type) for field in _fields(cls)}
    inner = {name: found for name, found in inner.items() if found}
    made: Schema = {"required": required} if required else {}
    return {**made, "properties": inner} if inner else made


def _fields(cls: type[Any]) -> list[Any]:
    return [field for field in attrs.fields(attrs.resolve_types(cls)) if field.init]


def _property(field: Any) -> Schema:
    kind = field.metadata.get("component")
    made: Schema = _may(field.type) if kind is None else {"$ref": f"#/$defs/{kind}"}
    if field.validator is not None:
        made = {**made, **_bounds(field.validator)}
    if "doc" in field.metadata:
        made["description"] = str(field.metadata["doc"])
    default = field.default
    if isinstance(default, bool | int | float | str):
        made["default"] = default
    return made


def _may(type_: Any) -> Schema:
    if type_ is Any:
        return {}
    if type_ is type(None):
        return {"type": "null"}
    if type_ in _SCALARS:
        return {"type": _SCALARS[type_]}
    if attrs.has(type_):
        # null is the same as no options.
        return {
            "type": ["object", "null"],
            "properties": properties(type_),
            "additionalProperties": False,
        }
    return _COMPOSED[_origin(type_)](get_args(type_))


def _origin(type_: Any) -> Any:
    origin = get_origin(type_) or type_
    if origin in (list, Sequence):
        return Sequence
    if origin in (dict, Mapping):
        return Mapping
    return Union if origin is types.UnionType else origin


def _union(members: tuple[Any, ...]) -> Schema:
    made = [_may(member) for member in members]
    if {} in made:
        return {}
    kinds = [each.get("type") for each in made]
    if len(made) == 2 and made[1] == {"type": "null"} and isinstance(kinds[0], str):
        return {**made[0], "type": [kinds[0], "null"]}
    return {"anyOf": made}


def _tuple(items: tuple[Any, ...]) -> Schema:
    if len(items) == 2 and items[1] is ...:
        return _list(items[:1])
    made = [_whole(item) for item in items]
    return {"type": "array", "prefixItems": made, "minItems": len(made), "maxItems": len(made)}


def _list(items: tuple[Any, ...]) -> Schema:
    return {"type": "array", "items": _whole(items[0])}


def _mapping(arguments: tuple[Any, ...]) -> Schema:
    return {"type": "object", "additionalProperties": _may((arguments or (str, Any))[1])}


_COMPOSED: Mapping[Any, Callable[[tuple[Any, ...]], Schema]] = {
    Literal: lambda values: {"enum": list(values)},
    Union: _union,
    tuple: _tuple,
    Sequence: _list,
    Mapping: _mapping,
}


def _whole(type_: Any) -> Schema:
    """An item of a list, with its required values: lists are replaced, never merged."""
    needed = _needs(type_)
    return {"allOf": [_may(type_), needed]} if needed else _may(type_)


def _needs(type_: Any) -> Schema:
    """Required values of a type; they apply to mappings only."""
    if isinstance(type_, type) and attrs.has(type_):
        return needs(type_)
    origin = _origin(type_)
    if origin is Union:
        found = [made for made in map(_needs, get_args(type_)) if made]
        return found[0] if len(found) == 1 else {}
    if origin is Mapping:
        below = _needs((get_args(type_) or (str, Any))[1])
        return {"additionalProperties": below} if below else {}
    return {}


def _bounds(validator: Any) -> Schema:
    """The bounds of a validator that a schema can express; the reader checks the rest."""
    kind = type(validator)
    if kind is _OPTIONAL:
        return _bounds(validator.validator)
    if kind is _AND:
        made: Schema = {}
        for each in validator._validators:
            made |= _bounds(each)
        return made
    if kind is _NUMBER:
        return {_BOUNDS[validator.compare_op]: validator.bound}
    if kind is _LONG:
        return {"minLength": validator.min_length, "minItems": validator.min_length}
    if kind is _MATCHES:
        return {"pattern": f"^(?:{validator.pattern.pattern})$"}
    return {}


# The classes of attrs' validators are private.
_NUMBER: Any = type(validators.ge(0))
_OPTIONAL: Any = type(validators.optional(validators.ge(0)))
_AND: Any = type(validators.and_(validators.ge(0)))
_LONG: Any = type(validators.min_len(0))
_MATCHES: Any = type(validators.matches_re(""))
