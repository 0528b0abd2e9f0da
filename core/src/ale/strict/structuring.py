"""Structure nodes into attrs classes with cattrs, strictly, and report every problem at once.

cattrs dispatches on the type. The hooks here are stricter than its own: text is not converted to
booleans or numbers, a string is not a list, unknown keys are errors, and every problem has its
file, line and path.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

import attrs

from ale.errors import InputError, PluginError, Problem, nearest
from ale.strict.node import Node, describe

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")


class Problems:
    """The problems of several parts, to raise them all at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def collect(self, make: Callable[[], Any]) -> Any:
        """The result of `make`; None if it raises an `InputError`, whose problems are kept."""
        try:
            return make()
        except InputError as error:
            self.found += error.problems
            return None

    def raise_all(self) -> None:
        """Raise an `InputError` if there are any."""
        if self.found:
            raise InputError(self.found)


class NameOrPath(str):
    """Text that is a name or a path, such as a model's.

    Read as an option, it is made absolute if it begins with ``.``, ``/`` or ``~`` or if something
    is there, relative to the file it was written in; else it is left as a name.
    """

    __slots__ = ()


@attrs.frozen
class Former:
    """An option that an options class had before, in its ``former_options`` by name.

    A stored run lists every option, and must stay readable. So `structure` passes over a former
    option that has the value which the code now has built in. With any other it is an error::

        former_options: ClassVar[Mapping[str, Former]] = {
            "wait_s": Former(30.0),
            "account": Former(None, "sbatch: [--account=NAME]"),
        }

    Attributes:
        value: what is built in, as in a config.
        instead: what to write for another value, if that is possible.
    """

    value: Any
    instead: str | None = None


def former_options(cls: type) -> dict[str, Former]:
    """The former options of a class and its bases that it does not have again."""
    found: dict[str, Former] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("former_options", {})
    return {name: former for name, former in found.items() if name not in attrs.fields_dict(cls)}


def structure(node: Node, cls: type[T], *, path: str = "") -> T:
    """Convert a node to an instance of `cls`.

    Args:
        node: what was read.
        cls: an attrs class. Its fields may be bool, int, float, str, Path (made absolute,
            relative to the file it was written in), `NameOrPath`, Literal, Any, attrs classes,
            and tuple, Mapping and ``X | None`` of these. Validators and ``__attrs_post_init__``
            may raise ValueError; each becomes a problem.
        path: path of `node` in its document, for messages.

    Raises:
        InputError: with every problem.
        PluginError: a field of `cls` has another type, or a name that is not defined.
    """
    return _converter().structure(_Input(node, path), cls)


@attrs.frozen(eq=False)
class _Input:
    """The argument of each hook: a node and its path in the document."""

    node: Node
    path: str
    nullable: bool = False
    """Would null be right, too?"""
    words: tuple[str, ...] = ()
    """Words that would be right, too."""

    def child(self, key: str) -> "_Input":
        """An entry; one that is missing has this node's file and line."""
        node = self.node.get(key) or self.node
        return _Input(node, f"{self.path}.{key}" if self.path else key)

    def fail(
        self, message: str, expected: str | None = None, hint: str | None = None
    ) -> InputError:
        return self.node.error(message, path=self.path, expected=expected, hint=hint)

    def expected(self, what: str, hint: str | None = None) -> InputError:
        others = "".join(f" or {each}" for each in (*self.words, *["null"] * self.nullable))
        hint = hint or nearest(str(self.node.value), self.words)
        return self.fail(f"expected {what}{others}, found {describe(self.node.value)}", hint=hint)


def _bool(given: _Input, _: Any) -> bool:
    if isinstance(given.node.value, bool):
        return given.node.value
    meant = {"on": "true", "yes": "true", "off": "false", "no": "false"}
    word = meant.get(str(given.node.value).lower())
    raise given.expected("true or false", hint=f"write {word}" if word else None)


def _int(given: _Input, _: Any) -> int:
    if isinstance(given.node.value, int) and not isinstance(given.node.value, bool):
        return given.node.value
    raise given.expected("a whole number")


def _float(given: _Input, _: Any) -> float:
    value = given.node.value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise given.expected("a number")
    # A run stores its config as JSON, which has no others.
    with suppress(OverflowError):
        if isfinite(value):
            return float(value)
    raise given.expected("a finite number")


def _str(given: _Input, _: Any) -> str:
    if isinstance(given.node.value, str):
        return given.node.value
    scalar = given.node.value is not None and not isinstance(given.node.value, dict | list)
    raise given.expected("text", hint="put it in quotes" if scalar else None)


def _path(given: _Input, _: Any) -> Path:
    base = Path.cwd() if given.node.file is None else Path(given.node.file).absolute().parent
    text = _str(given, str)
    try:
        path = (base / Path(text).expanduser()).resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.stat()  # for a name that is too long, and a link to itself
    except (OSError, RuntimeError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise given.fail(f"expected a path: {reason}") from None
    return path


def _name_or_path(given: _Input, _: Any) -> str:
    text = _str(given, str)
    path = _path(given, Path)
    return str(path) if text.startswith((".", "/", "~")) or path.exists() else text


def _none(given: _Input, _: Any) -> None:
    if given.node.value is not None:
        raise given.expected("nothing")


def _any(given: _Input, _: Any) -> Any:
    return given.node.plain()


def _literal(given: _Input, type_: Any) -> Any:
    allowed = get_args(type_)
    for value in allowed:
        if given.node.value == value and type(given.node.value) is type(value):
            return value
    raise given.expected(
        "one of " + ", ".join(str(value) for value in allowed),
        hint=nearest(str(given.node.value), [str(value) for value in allowed]),
    )


def _each(parts: Sequence[tuple[_Input, Any]], converter: "Converter") -> list[Any]:
    """Structure all parts, then raise the problems of all of them."""
    problems = Problems()
    made = [problems.collect(partial(converter.structure, *part)) for part in parts]
    problems.raise_all()
    return made


def _sequence_hook(type_: Any, converter: "Converter") -> Callable[[_Input, Any], Any]:
    arguments = get_args(type_)
    fixed = get_origin(type_) is tuple and not (len(arguments) == 2 and arguments[1] is ...)

    def hook(given: _Input, _: Any) -> Any:
        items = given.node.items
        if items is None:
            raise given.expected("a list", hint="write [...], or one '- item' a line")
        if fixed and len(items) != len(arguments):
            raise given.fail(f"expected {len(arguments)} items, found {len(items)}")
        places = [_Input(item, f"{given.path}[{i}]") for i, item in enumerate(items)]
        wanted = arguments if fixed else [arguments[0]] * len(items)
        return tuple(_each(list(zip(places, wanted, strict=True)), converter))

    return hook


def _mapping_hook(type_: Any, converter: "Converter") -> Callable[[_Input, Any], Any]:
    value_type = (get_args(type_) or (str, Any))[1]

    def hook(given: _Input, _: Any) -> Any:
        if given.node.mapping is None:
            raise given.expected("a mapping")
        keys = list(given.node.mapping)
        values = _each([(given.child(key), value_type) for key in keys], converter)
        return dict(zip(keys, values, strict=True))

    return hook


def _union_hook(type_: Any, converter: "Converter") -> Callable[[_Input, Any], Any]:
    members = [member for member in get_args(type_) if member is not type(None)]
    optional = len(members) < len(get_args(type_))
    literals = [get_args(member) for member in members if get_origin(member) is Literal]
    words = tuple(str(word) for each in literals for word in each)

    def hook(given: _Input, _: Any) -> Any:
        if optional and given.node.value is None:
            return None
        given = attrs.evolve(given, nullable=optional)
        spelled = attrs.evolve(given, words=words)
        failures: list[tuple[type, InputError]] = []
        for member in members:
            try:
                literal = get_origin(member) is Literal
                return converter.structure(given if literal else spelled, member)
            except InputError as invalid:
                failures.append((member, invalid))

        def relevance(failure: tuple[type, InputError]) -> tuple[int, bool]:
            """A deeper problem is the more useful message: a bad item, not "expected text"."""
            member, invalid = failure
            both_mappings = given.node.mapping is not None and attrs.has(member)
            return len(invalid.problems[0].path or ""), both_mappings

        raise max(failures, key=relevance)[1]

    return hook


def _attrs_hook(cls: Any, converter: "Converter") -> Callable[[_Input, Any], Any]:
    fields = {field.name: field for field in attrs.fields(cls) if field.init}
    required = [name for name, field in fields.items() if field.default is attrs.NOTHING]
    try:
        attrs.resolve_types(cls)
    except NameError as error:
        raise PluginError(f"{cls.__qualname__}: {error}") from error
    resolved = {f.name: f.type for f in attrs.fields(cls)}
    docs = {name: field.metadata.get("doc") for name, field in fields.items()}
    former = former_options(cls)

    def hook(given: _Input, _: Any) -> Any:
        entries = given.node.mapping if given.node.value is not None else {}
        if entries is None:
            raise given.expected("a mapping")
        text = given.node.replaced_text
        if text is not None and len(required) == 1 and required[0] not in entries:
            entries = {required[0]: text, **entries}
            given = attrs.evolve(given, node=attrs.evolve(given.node, value=entries))
        others = [key for key in entries if key not in fields]
        found = [_former(given, key, former[key]) for key in others if key in former]
        problems = [each for each in found if each is not None]
        problems += [_unknown(given, key, fields) for key in others if key not in former]
        problems += [
            given.node.problem(f"'{name}' is missing", path=given.path, expected=docs.get(name))
            for name in required
            if name not in entries
        ]
        values = {}
        for key in [name for name in fields if name in entries]:
            try:
                values[key] = converter.structure(given.child(key), resolved[key])
            except InputError as invalid:
                problems += invalid.problems
        if problems:
            problems += _failed_validators(cls, _partial(cls, values), given)
            raise InputError(sorted(problems, key=lambda problem: problem.line or 0))
        return _construct(cls, values, given)

    return hook


def _unknown(given: _Input, key: str, fields: Mapping[str, Any]) -> Problem:
    child = given.child(key)
    return child.node.problem(
        "unknown option",
        path=child.path,
        expected="one of " + ", ".join(sorted(fields)) if fields else "no options",
        hint=nearest(key, fields),
    )


def _former(given: _Input, key: str, former: Former) -> Problem | None:
    """The problem of a former option with another value than the one that is built in."""
    child = given.child(key)
    if child.node.plain() == former.value:
        return None
    hint = None if former.instead is None else f"write {former.instead}"
    built_in = "" if former.value is None else f": {describe(former.value)} is built in"
    expected = f"a config without it{built_in}"
    return child.node.problem("option was removed", path=child.path, expected=expected, hint=hint)


def _construct(cls: Any, values: dict[str, Any], given: _Input) -> Any:
    """Build with validators off, then run them all, so that every failure is reported."""
    try:
        with attrs.validators.disabled():
            made = cls(**values)
    except ValueError as error:
        raise given.fail(str(error)) from None
    problems = _failed_validators(cls, made, given)
    if problems:
        raise InputError(problems)
    return made


def _partial(cls: Any, values: dict[str, Any]) -> Any:
    """An instance with only the fields that could be read, for validators."""
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _failed_validators(cls: Any, made: Any, given: _Input) -> list[Problem]:
    problems: list[Problem] = []
    for field in attrs.fields(cls):
        # Defaults too: a validator may compare them with what was given.
        if field.validator is None or not hasattr(made, field.name):
            continue
        try:
            field.validator(made, field, getattr(made, field.name))
        except (ValueError, TypeError) as error:
            child = given.child(field.name)
            null = type(None) in get_args(field.type)
            problems += child.fail(_validator_message(error, child.node.value, null)).problems
        except AttributeError:
            if all(hasattr(made, other.name) for other in attrs.fields(cls)):
                raise
            # The validator needs a field that could not be read, which is a problem already.
    return problems


def _validator_message(error: Exception, value: object, nullable: bool) -> str:
    """The message of a validator without the field's name, which the problem's path has.

    attrs writes "'memory_mb' must be >= 16: 3" and "Length of 'model' must be >= 1: 0", and in
    place of "'url' must match regex ..." it gives the pattern.
    """
    text = str(error.args[0]) if error.args else str(error)
    null = " or null" if nullable else ""
    pattern = next((each for each in error.args[1:] if isinstance(each, re.Pattern)), None)
    if pattern is not None:
        form = f"a text of the form {pattern.pattern}"
        return f"expected {'null or ' if nullable else ''}{form}, found {describe(value)}"
    must, colon, found = text.partition(": ")
    name, be, bound = must.partition(" must be ")
    if not be or not colon:
        return text
    if not name.startswith("Length of "):
        return f"expected a value {bound}{null}, found {found}"
    kind = "text" if isinstance(value, str) else "list"
    if bound == ">= 1":
        return f"expected a non-empty {kind}{null}, found an empty one"
    return f"expected a {kind} of length {bound}{null}, found one of length {found}"


def _unreadable(type_: Any) -> Callable[[_Input, Any], Any]:
    """For a field without a type too, whose value cattrs would pass on as it is."""

    def hook(given: _Input, _: Any) -> Any:
        raise PluginError(f"{given.path}: an option can't be of type {type_}")

    return hook


def _origin_is(*origins: Any) -> Callable[[Any], bool]:
    return lambda type_: get_origin(type_) in origins or type_ in origins


@cache
def _converter() -> "Converter":
    from cattrs import Converter  # late: reading a node does not need it

    converter = Converter(structure_fallback_factory=_unreadable)
    for scalar, hook in ((bool, _bool), (int, _int), (float, _float), (str, _str)):
        converter.register_structure_hook(scalar, hook)
    converter.register_structure_hook(Path, _path)
    converter.register_structure_hook(NameOrPath, _name_or_path)
    converter.register_structure_hook(type(None), _none)
    converter.register_structure_hook_func(lambda type_: type_ is Any, _any)
    converter.register_structure_hook_func(lambda type_: type_ is None, _unreadable(None))
    converter.register_structure_hook_func(_origin_is(Literal), _literal)
    sequences = _origin_is(tuple, list, Sequence)
    mappings = _origin_is(dict, Mapping)
    unions = _origin_is(Union, types.UnionType)
    converter.register_structure_hook_factory(sequences, _sequence_hook)
    converter.register_structure_hook_factory(mappings, _mapping_hook)
    converter.register_structure_hook_factory(unions, _union_hook)
    converter.register_structure_hook_factory(attrs.has, _attrs_hook)
    return converter
