"""Describe an options class, for ``ale plugins`` and the generated reference."""

import inspect
import types
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from attrs import frozen


@frozen(kw_only=True)
class OptionText:
    """The name, type, default and description of an option."""

    name: str
    type: str
    default: str
    doc: str


def describe_options(cls: type) -> list[OptionText]:
    """The options of a class, required ones first."""
    attrs.resolve_types(cls)
    fields = sorted(attrs.fields(cls), key=lambda field: field.default is not attrs.NOTHING)
    return [
        OptionText(
            name=field.name,
            type="name | mapping" if "component" in field.metadata else type_text(field.type),
            default=_text(default_of(field)),
            doc=str(field.metadata.get("doc", "")),
        )
        for field in fields
        if field.init
    ]


def default_of(field: "attrs.Attribute[Any]") -> Any:
    """An option's default; None where it depends on other options."""
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return None if default.takes_self else default.factory()
    return default


def _text(default: Any) -> str:
    if default is attrs.NOTHING:
        return "required"
    if default is None:
        return "-"
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(list(default)) if isinstance(default, tuple) else str(default)


def type_text(type_: Any) -> str:
    """A type in the terms of YAML."""
    simple = {bool: "true/false", int: "whole number", float: "number", str: "text"}
    if type_ in simple:
        return simple[type_]
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(type_text(a) for a in arguments if a is not type(None))
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin is not None:
        return "mapping"
    if inspect.isclass(type_):
        return {"Path": "path", "NameOrPath": "name or path"}.get(type_.__name__, "mapping")
    return "any"
