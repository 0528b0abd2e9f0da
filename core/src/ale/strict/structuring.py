"""Structure nodes into attrs classes with cattrs, strictly, and report every problem at once.

cattrs finds the hook for a type; the hooks here add what it leaves lenient: text is not turned
into booleans or numbers, a string is not a list, keys that no field has are problems, and each
problem keeps its place in the document.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from ale.errors import InputError, Problem, nearest
from ale.strict.node import Node, describe

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


class _Invalid(Exception):
    """Problems found below one node."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__()
        self.problems = list(problems)


def structure(node: Node, cls: type[T], *, path: str = "") -> T:
    """Make a `cls` of what is written.

    Args:
        node: what was read.
        cls: an attrs class. Its fields may be bool, int, float, str, Path (made absolute,
            relative to the file it was written in), Literal, Any, attrs classes, and tuple,
            Mapping and ``X | None`` of these. Validators and ``__attrs_post_init__`` may raise
            ValueError; each becomes a problem.
        path: of `node` in its document, for messages.

    Raises:
        InputError: with every problem.
    """
    try:
        made: T = _converter().structure(_At(node, path), cls)
    except _Invalid as invalid:
        raise InputError(invalid.problems) from None
    return made


@attrs.frozen(eq=False)
class _At:
    """A node and its path: what the hooks are given."""

    node: Node
    path: str

    def child(self, key: str) -> "_At":
        assert self.node.mapping is not None
        return _At(self.node.mapping[key], f"{self.path}.{key}" if self.path else key)

    def fail(self, message: str, expected: str | None = None, hint: str | None = None) -> _Invalid:
        problem = self.node.problem(message, path=self.path, expected=expected, hint=hint)
        return _Invalid([problem])

    def expected(self, what: str, hint: str | None = None) -> _Invalid:
        return self.fail(f"expected {what}, found {describe(self.node.value)}", hint=hint)


def _bool(at: _At, _: Any) -> bool:
    if isinstance(at.node.value, bool):
        return at.node.value
    meant = {"on": "true", "yes": "true", "off": "false", "no": "false"}
    word = meant.get(str(at.node.value).lower())
    raise at.expected("true or false", hint=f"write {word}" if word else None)


def _int(at: _At, _: Any) -> int:
    if isinstance(at.node.value, int) and not isinstance(at.node.value, bool):
        return at.node.value
    raise at.expected("a whole number")


def _float(at: _At, _: Any) -> float:
    if isinstance(at.node.value, int | float) and not isinstance(at.node.value, bool):
        return float(at.node.value)
    raise at.expected("a number")


def _str(at: _At, _: Any) -> str:
    if isinstance(at.node.value, str):
        return at.node.value
    scalar = at.node.value is not None and not isinstance(at.node.value, dict | list)
    raise at.expected("text", hint="put it in quotes" if scalar else None)


def _path(at: _At, _: Any) -> Path:
    base = Path.cwd() if at.node.file is None else Path(at.node.file).absolute().parent
    return (base / Path(_str(at, str)).expanduser()).resolve()


def _none(at: _At, _: Any) -> None:
    if at.node.value is not None:
        raise at.expected("nothing")


def _any(at: _At, _: Any) -> Any:
    return at.node.plain()


def _literal(at: _At, type_: Any) -> Any:
    allowed = get_args(type_)
    for value in allowed:
        if at.node.value == value and type(at.node.value) is type(value):
            return value
    raise at.expected(
        "one of " + ", ".join(str(value) for value in allowed),
        hint=nearest(str(at.node.value), [str(value) for value in allowed]),
    )


def _each(parts: Sequence[tuple[_At, Any]], converter: "Converter") -> list[Any]:
    """Structure all parts, then raise what was wrong with any of them."""
    made: list[Any] = []
    problems: list[Problem] = []
    for at, type_ in parts:
        try:
            made.append(converter.structure(at, type_))
        except _Invalid as invalid:
            problems += invalid.problems
    if problems:
        raise _Invalid(problems)
    return made


def _sequence_hook(type_: Any, converter: "Converter") -> Callable[[_At, Any], Any]:
    arguments = get_args(type_)
    fixed = get_origin(type_) is tuple and not (len(arguments) == 2 and arguments[1] is ...)

    def hook(at: _At, _: Any) -> Any:
        items = at.node.items
        if items is None:
            raise at.expected("a list", hint="write [...], or one '- item' a line")
        if fixed and len(items) != len(arguments):
            raise at.fail(f"expected {len(arguments)} items, found {len(items)}")
        places = [_At(item, f"{at.path}[{i}]") for i, item in enumerate(items)]
        wanted = arguments if fixed else [arguments[0]] * len(items)
        return tuple(_each(list(zip(places, wanted, strict=True)), converter))

    return hook


def _mapping_hook(type_: Any, converter: "Converter") -> Callable[[_At, Any], Any]:
    value_type = (get_args(type_) or (str, Any))[1]

    def hook(at: _At, _: Any) -> Any:
        if at.node.mapping is None:
            raise at.expected("a mapping")
        keys = list(at.node.mapping)
        values = _each([(at.child(key), value_type) for key in keys], converter)
        return dict(zip(keys, values, strict=True))

    return hook


def _union_hook(type_: Any, converter: "Converter") -> Callable[[_At, Any], Any]:
    members = [member for member in get_args(type_) if member is not type(None)]
    optional = len(members) < len(get_args(type_))

    def hook(at: _At, _: Any) -> Any:
        if optional and at.node.value is None:
            return None
        refused: list[tuple[int, bool, _Invalid]] = []
        for member in members:
            try:
                return converter.structure(at, member)
            except _Invalid as invalid:
                # What fails deepest is what was meant: a bad item of a list, not "expected text".
                depth = len(invalid.problems[0].path or "")
                alike = at.node.mapping is not None and attrs.has(member)
                refused.append((depth, alike, invalid))
        raise max(refused, key=lambda one: one[:2])[2]

    return hook


def _attrs_hook(cls: Any, converter: "Converter") -> Callable[[_At, Any], Any]:
    fields = {field.name: field for field in attrs.fields(cls) if field.init}
    required = [name for name, field in fields.items() if field.default is attrs.NOTHING]
    resolved = attrs.resolve_types(cls) and {f.name: f.type for f in attrs.fields(cls)}

    def hook(at: _At, _: Any) -> Any:
        entries = at.node.mapping if at.node.value is not None else {}
        if entries is None:
            raise at.expected("a mapping")
        if at.node.over is not None and len(required) == 1 and required[0] not in entries:
            entries = {required[0]: at.node.over, **entries}
            at = attrs.evolve(at, node=attrs.evolve(at.node, value=entries))
        problems = [_unknown(at, key, fields) for key in entries if key not in fields]
        problems += [
            at.node.problem(f"'{name}' is missing", path=at.path, expected=_doc(field))
            for name, field in ((name, fields[name]) for name in required)
            if name not in entries
        ]
        values = {}
        for key in [name for name in fields if name in entries]:
            try:
                values[key] = converter.structure(at.child(key), resolved[key])
            except _Invalid as invalid:
                problems += invalid.problems
        if problems:
            problems += _refused(cls, _partial(cls, values), values, at)
            raise _Invalid(sorted(problems, key=lambda problem: problem.line or 0))
        return _construct(cls, values, at)

    return hook


def _unknown(at: _At, key: str, fields: Mapping[str, Any]) -> Problem:
    child = at.child(key)
    return child.node.problem(
        "unknown option",
        path=child.path,
        expected="one of " + ", ".join(sorted(fields)) if fields else "no options",
        hint=nearest(key, fields),
    )


def _doc(field: Any) -> str | None:
    text = field.metadata.get("doc")
    return None if text is None else str(text)


def _construct(cls: Any, values: dict[str, Any], at: _At) -> Any:
    """Build with validators off, then run each of them, so that all of them are heard."""
    try:
        with attrs.validators.disabled():
            made = cls(**values)
    except ValueError as error:
        raise at.fail(str(error)) from None
    problems = _refused(cls, made, values, at)
    if problems:
        raise _Invalid(problems)
    return made


def _partial(cls: Any, values: dict[str, Any]) -> Any:
    """An instance with only those fields that could be read, for validators to look at."""
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _refused(cls: Any, made: Any, values: dict[str, Any], at: _At) -> list[Problem]:
    problems: list[Problem] = []
    for field in attrs.fields(cls):
        if field.validator is None or field.name not in values:
            continue
        try:
            field.validator(made, field, getattr(made, field.name))
        except (ValueError, TypeError) as error:
            problems += at.child(field.name).fail(_said(error)).problems
        except AttributeError:
            if all(hasattr(made, other.name) for other in attrs.fields(cls)):
                raise
            # It compares with a field that could not be read, and that is reported already.
    return problems


def _said(error: Exception) -> str:
    # attrs says "'memory_mb' must be >= 16: 3"; the path already names the field.
    text = str(error.args[0]) if error.args else str(error)
    must, colon, found = text.partition(": ")
    if " must be " in must and colon:
        return f"expected a value {must.partition(' must be ')[2]}, found {found}"
    return text


def _origin_is(*origins: Any) -> Callable[[Any], bool]:
    return lambda type_: get_origin(type_) in origins or type_ in origins


@cache
def _converter() -> "Converter":
    from cattrs import Converter  # late: reading a node does not need it

    converter = Converter()
    for scalar, hook in ((bool, _bool), (int, _int), (float, _float), (str, _str)):
        converter.register_structure_hook(scalar, hook)
    converter.register_structure_hook(Path, _path)
    converter.register_structure_hook(type(None), _none)
    converter.register_structure_hook_func(lambda type_: type_ is Any, _any)
    converter.register_structure_hook_func(_origin_is(Literal), _literal)
    sequences = _origin_is(tuple, list, Sequence)
    mappings = _origin_is(dict, Mapping)
    unions = _origin_is(Union, types.UnionType)
    converter.register_structure_hook_factory(sequences)(_factory(_sequence_hook, converter))
    converter.register_structure_hook_factory(mappings)(_factory(_mapping_hook, converter))
    converter.register_structure_hook_factory(unions)(_factory(_union_hook, converter))
    converter.register_structure_hook_factory(attrs.has)(_factory(_attrs_hook, converter))
    return converter


def _factory(
    make: Callable[[Any, "Converter"], Callable[[_At, Any], Any]], converter: "Converter"
) -> Callable[[Any], Callable[[_At, Any], Any]]:
    return lambda type_: make(type_, converter)
