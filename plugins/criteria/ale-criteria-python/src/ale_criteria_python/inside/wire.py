"""Values as bytes, between the process of the tests and the process of the answer.

Read back are only values of exact builtin types, of a few types of the standard library, instances
of the classes that the task's set-up defines, and references to objects on the other side. So no
code of the sender runs when a value is read or compared.

No modules are imported, because each costs as much as a short test.
"""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Plan = dict[str, Any]
    Shared = dict[str, type]
    Refer = Callable[[Any], bytes]
    Resolve = Callable[[bytes, bytes, "Decoder"], Any]

KNOWN: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "decimal.Decimal": lambda v: (str(v),),
    "fractions.Fraction": lambda v: (v.numerator, v.denominator),
    "datetime.date": lambda v: (v.year, v.month, v.day),
    "datetime.time": lambda v: (*clock(v), v.tzinfo, v.fold),
    "datetime.datetime": lambda v: (v.year, v.month, v.day, *clock(v), v.tzinfo, v.fold),
    "datetime.timedelta": lambda v: (v.days, v.seconds, v.microseconds),
    "datetime.timezone": lambda v: tuple(v.__getinitargs__()),
    "zoneinfo.ZoneInfo": lambda v: (v.key,),
    "uuid.UUID": lambda v: (v.hex,),
}
"""Types of the standard library that are rebuilt from arguments."""
FOLDS = ("datetime.time", "datetime.datetime")
"""Those whose last argument is ``fold``, which has to be given by name."""
CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "collections.deque": lambda v: v.maxlen,
    "collections.Counter": lambda v: None,
    "collections.OrderedDict": lambda v: None,
    "collections.defaultdict": lambda v: v.default_factory,
    "array.array": lambda v: v.typecode,
}
"""Mutable ones, by what an empty one is made of."""


def is_list_like(value: Any) -> bool:
    """Whether it is a deque or an array."""
    return type(value).__module__ in ("collections", "array") and not isinstance(value, dict)


def clock(value: Any) -> tuple[int, int, int, int]:
    """The time of day."""
    return (value.hour, value.minute, value.second, value.microsecond)


def is_known_zone(zone: Any) -> bool:
    """Whether both sides have a time zone: none, a fixed one, or a named one of the library."""
    if zone is None:
        return True
    name = type(zone).__module__ + "." + type(zone).__qualname__
    return name == "datetime.timezone" or (name == "zoneinfo.ZoneInfo" and bool(zone.key))


BASES: tuple[Any, ...] = (
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    tuple,
    list,
    dict,
    frozenset,
    set,
)
TYPES: dict[str, type] = {
    kind.__name__: kind for kind in (*BASES, bool, range, slice, object, type, type(None))
}
TYPES.update(
    (name, kind)
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
)
"""Builtin types that are the same on both sides. None of them runs code that it is given."""
VIEWS: dict[str, Callable[[Any], Any]] = {
    "keys": lambda items: dict.fromkeys(items).keys(),
    "values": lambda items: dict(enumerate(items)).values(),
    "items": lambda items: dict(items).items(),
}
OPERATORS: tuple[str, ...] = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
OPERATORS += ("matmul", "and_", "or_", "xor", "lshift", "rshift")
SEQUENCES: dict[Any, bytes] = {list: b"l", tuple: b"t", set: b"e", frozenset: b"z"}
MUTABLE = (list, dict, set, bytearray)


class Encoder:
    """Writes one message."""

    def __init__(self, refer: Refer, shared: Shared, known: Sequence[Any] = ()) -> None:
        """`refer(value)` gives the reference for an object that can't be copied.

        Args:
            shared: classes that both sides have, by name.
            known: mutable objects that the reader has as well, in its order.
        """
        self.refer, self.shared = refer, shared
        self.index = {id(value): i for i, value in enumerate(known) if value is not None}
        self.keep = list(known)
        self.parts: list[bytes] = []
        self.used: set[int] = set()
        """Numbers of the known objects that are in the message."""

    def remember(self, value: Any) -> bool:
        """Whether the value was written before; a reference to it is then enough."""
        number = self.index.get(id(value))
        if number is not None:
            self.used.add(number)
            self.parts.append(b"@%d\n" % number)
            return True
        self.index[id(value)] = len(self.keep)
        self.keep.append(value)
        return False

    def write(self, value: Any) -> None:
        """Append a value."""
        kind = type(value)
        if value is None:
            self.parts.append(b"N")
        elif kind is bool:
            self.parts.append(b"T" if value else b"F")
        elif kind in BASES:
            self.write_base(kind, value)
        elif kind in (range, slice):
            self.parts.append(b"r" if kind is range else b"S")
            self.items((value.start, value.stop, value.step))
        elif self.shared.get(kind.__name__) is kind and hasattr(value, "__dict__"):
            if not self.remember(value):
                self.parts.append(b"o%s\n" % kind.__name__.encode())
                self.content(value)
        else:
            self.write_other(kind, value)

    def write_base(self, kind: Any, value: Any) -> None:
        """Append a value of a builtin type."""
        if kind in MUTABLE and self.remember(value):
            return
        if kind is int:
            self.parts.append(b"i%x\n" % value)
        elif kind is float:
            self.parts.append(b"f%s\n" % value.hex().encode())
        elif kind is str:
            self.text(b"s", value.encode("utf-8", "surrogatepass"))
        elif kind is bytes:
            self.text(b"b", value)
        elif kind is complex:
            self.parts.append(b"c%s\n%s\n" % (value.real.hex().encode(), value.imag.hex().encode()))
        else:
            self.parts.append(b"B" if kind is bytearray else SEQUENCES.get(kind, b"d"))
            self.content(value)

    def content(self, value: Any) -> None:
        """Append what is in a container."""
        if isinstance(value, bytearray):
            self.text(b"", bytes(value))
        elif isinstance(value, (list, tuple, set, frozenset)) or is_list_like(value):
            self.items(value)
        else:
            pairs = value if isinstance(value, dict) else vars(value)
            self.items([part for pair in pairs.items() for part in pair])

    def items(self, values: Any) -> Any:
        """Append a number of values."""
        self.parts.append(b"%d\n" % len(values))
        for value in values:
            self.write(value)

    def text(self, tag: bytes, data: bytes) -> Any:
        """Append bytes."""
        self.parts.append(b"%s%d\n%s" % (tag, len(data), data))

    def write_other(self, kind: Any, value: Any) -> None:
        """Append a value of the library, one that stands for a plain one, or a reference."""
        name = str(kind.__module__) + "." + str(kind.__qualname__)
        if issubclass(kind, type) and (own := self.name_of(value)):
            self.parts.append(b"y%s\n" % own.encode())
        elif kind.__name__ in ("dict_keys", "dict_values", "dict_items"):
            self.parts.append(b"v%s\n" % kind.__name__[5:].encode())
            self.items(list(value))
        elif name in CONTAINERS:
            if not self.remember(value):
                self.parts.append(b"m%s\n" % name.encode())
                self.write(CONTAINERS[name](value))
                self.content(value)
        elif name in KNOWN and is_known_zone(getattr(value, "tzinfo", None)):
            self.parts.append(b"x%s\n" % name.encode())
            self.write(KNOWN[name](value))
        elif name.startswith("numpy.") and getattr(value, "ndim", None) == 0:
            self.write(value.item())
        elif issubclass(kind, BASES) and is_plain(kind):
            self.write(base_value(value))
        else:
            self.parts.append(self.refer(value))

    def name_of(self, kind: Any) -> str:
        """The name of a class that both sides have; empty of any other."""
        name = str(kind.__name__)
        if TYPES.get(name) is kind:
            return name
        if self.shared.get(name) is kind:
            return "answer." + name
        whole = str(kind.__module__) + "." + name
        is_known = whole in KNOWN or whole in CONTAINERS
        return whole if is_known and found_type(whole) is kind else ""

    def done(self) -> bytes:
        """The message."""
        return b"".join(self.parts)


NAMED = ("_fields", "n_fields", "_member_map_")
"""What named tuples, results of the system and enumerations have, whose names tests may use."""


def is_plain(kind: Any) -> bool:
    """Whether an instance of a subclass of a builtin type is no more than its plain value."""
    return kind.__module__ != "answer" and not any(hasattr(kind, name) for name in NAMED)


def base_value(value: Any) -> Any:
    """The plain value of an instance of a subclass of a builtin type.

    Raises:
        TypeError: it has none.
    """
    for base in BASES:
        if isinstance(value, base):
            if base is int or base is float:
                return base.__int__(value) if base is int else base.__float__(value)
            if base is str:
                return str.__str__(value)
            if base is dict:
                return dict(dict.items(value))
            if base in SEQUENCES:
                return base(base.__iter__(value))
            return base.__add__(value, base())
    raise TypeError(type(value).__name__ + " is no subclass of a builtin type")


class Decoder:
    """Reads one message. Raises any `Exception` where it is not well formed."""

    def __init__(
        self, data: bytes, resolve: Resolve, shared: Shared, known: Sequence[Any] = ()
    ) -> None:
        """`resolve(tag, text, self)` gives the object for a reference."""
        self.data, self.at = data, 0
        self.resolve, self.shared, self.keep = resolve, shared, list(known)

    def line(self) -> bytes:
        """Everything up to the next line break."""
        end = self.data.index(b"\n", self.at)
        text = self.data[self.at : end]
        self.at = end + 1
        return text

    def text(self) -> Any:
        """Bytes with their length before them."""
        size = int(self.line())
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("a length is wrong")
        self.at += size
        return self.data[self.at - size : self.at]

    def items(self) -> Any:
        """A number of values."""
        return [self.read() for _ in range(int(self.line()))]

    def read(self) -> Any:
        """The next value."""
        tag = self.data[self.at : self.at + 1]
        self.at += 1
        return READERS[tag](self) if tag in READERS else self.resolve(tag, self.line(), self)

    def container(self, made: Any) -> Any:
        """Read into an empty container, which its own content may refer to."""
        self.keep.append(made)
        self.fill(made)
        return made

    def fill(self, made: Any) -> None:
        """Replace what is in a container."""
        if isinstance(made, bytearray):
            made[:] = self.text()
            return
        items = self.items()
        if isinstance(made, list):
            made[:] = items
        elif isinstance(made, set):
            made.clear()
            made.update(items)
        elif is_list_like(made):
            while made:
                made.pop()
            made.extend(items)
        else:
            pairs = made if isinstance(made, dict) else vars(made)
            pairs.clear()
            # Not `update`, with which a Counter counts.
            for key, value in zip(items[::2], items[1::2]):  # noqa: B905 - Python 3.8
                pairs[key] = value

    def library_container(self) -> Any:
        """A mutable container of the standard library."""
        name = self.line().decode()
        if name not in CONTAINERS:
            raise ValueError("unknown type " + name)
        number = len(self.keep)
        self.keep.append(None)
        argument, kind = self.read(), found_type(name)
        if name == "collections.deque":
            made = kind((), argument)
        else:
            made = kind() if argument is None else kind(argument)
        self.keep[number] = made
        self.fill(made)
        return made

    def rebuild(self) -> Any:
        """A value of the standard library."""
        name = self.line().decode()
        arguments = self.read()
        if name not in KNOWN or type(arguments) is not tuple:
            raise ValueError("unknown type " + name)
        if name in FOLDS:
            return found_type(name)(*arguments[:-1], fold=arguments[-1])
        return found_type(name)(*arguments)


def found_type(name: str) -> Any:
    """A class of the standard library that is in `KNOWN`."""
    module, _, kind = name.rpartition(".")
    return getattr(__import__(module), kind)


def _type(decoder: Decoder) -> Any:
    name = decoder.line().decode()
    if name.startswith("answer."):
        return decoder.shared[name[7:]]
    return found_type(name) if name in KNOWN or name in CONTAINERS else TYPES[name]


def _view(decoder: Decoder) -> Any:
    made = VIEWS[decoder.line().decode()]
    return made(decoder.items())


def _float(decoder: Decoder) -> float:
    return float.fromhex(decoder.line().decode())


READERS: dict[bytes, Callable[[Decoder], Any]] = {
    b"N": lambda d: None,
    b"T": lambda d: True,
    b"F": lambda d: False,
    b"i": lambda d: int(d.line(), 16),
    b"f": _float,
    b"c": lambda d: complex(_float(d), _float(d)),
    b"s": lambda d: d.text().decode("utf-8", "surrogatepass"),
    b"b": lambda d: bytes(d.text()),
    b"r": lambda d: range(*d.items()),
    b"S": lambda d: slice(*d.items()),
    b"l": lambda d: d.container([]),
    b"d": lambda d: d.container({}),
    b"e": lambda d: d.container(set()),
    b"B": lambda d: d.container(bytearray()),
    b"t": lambda d: tuple(d.items()),
    b"z": lambda d: frozenset(d.items()),
    b"x": lambda d: d.rebuild(),
    b"m": lambda d: d.library_container(),
    b"y": _type,
    b"v": _view,
    b"@": lambda d: d.keep[int(d.line())],
    b"o": lambda d: d.container(object.__new__(d.shared[d.line().decode()])),
}


def no_reference(value: Any) -> bytes:
    """For messages that hold plain values only."""
    raise TypeError("can't be written: " + repr(type(value)))


def pack(value: Any) -> bytes:
    """A plain value as bytes."""
    encoder = Encoder(no_reference, {})
    encoder.write(value)
    return encoder.done()


def unpack(data: bytes) -> Any:
    """The plain value of `pack`. Raises any `Exception`."""
    return Decoder(data, lambda tag, text, decoder: no_reference(tag), {}).read()
