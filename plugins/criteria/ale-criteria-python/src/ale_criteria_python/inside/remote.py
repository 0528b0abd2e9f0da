"""Objects of the answer, as the tests see them: what they do happens in the answer's process."""

from __future__ import annotations

import _operator
import _thread
import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ale_criteria_python.inside.wire import Decoder, Shared

if __name__ != "ale_grading":
    from ale_criteria_python.inside.around import NotSupportedError, Surroundings
    from ale_criteria_python.inside.channel import Channel, Closed
    from ale_criteria_python.inside.decoys import others
    from ale_criteria_python.inside.hiding import may_hide
    from ale_criteria_python.inside.twins import Twins
    from ale_criteria_python.inside.wire import OPERATORS, TYPES


class Ended(BaseException):
    """The answer's process ended, or did not answer in time; tests don't catch it by accident."""


class AnswerError(Exception):
    """An exception of the answer whose class is not known here."""


class Peer:
    """The answer's process, as the tests see it."""

    def __init__(self, channel: Channel, shared: Shared, surroundings: Surroundings) -> None:
        self.channel, self.shared, self.surroundings = channel, shared, surroundings
        self.twins, self.depth = Twins(), 0
        self.lock = _thread.RLock()
        self.test = ""
        """The test that is run."""
        self.remotes: dict[int, Remote] = {}
        self.errors: dict[int, Any] = {}
        self.own: list[Any] = []
        self.names: dict[int, str] = {}
        self.combines = False
        """Operators are given values of the tests, for objects that these have made."""
        self.made: set[int] = set()
        self.combined: set[int] = set()
        """Ids of these objects, and of what operators made of them."""
        self.classes: set[str] = set()
        """Names that the tests use as classes."""
        self.compared: set[int] = set()
        """Ids of objects that tests made of these classes: they may be given what they are compared
        with, which is not what was asked for."""
        self.spelled: set[str] = set()
        """Names that are only spelled as those of classes."""
        self.unclear: dict[int, str] = {}
        """By id, such a name, for objects that tests have made by it."""
        self.results: set[int] = set()
        """Ids of classes that the answer has also given as the result of something: what is made of
        such a one may be a result."""
        self.kept: dict[Any, Any] = {}
        """Results of requests in `KEPT`, as first given since anything may have changed."""
        self.acts = 0
        """Requests that may have changed anything."""
        self.last: Any = None
        """The last call, and its result."""
        self.ended = False
        self.asks_class = False
        """The answer is asked for its names, or for the class of an object."""

    def refer(self, value: Any) -> bytes:
        """A reference for what the answer is given and can't be copied."""
        if type(value) is Remote:
            return b"k%d\n" % object.__getattribute__(value, "_number")
        number = getattr(value, "_ale_number", None) if isinstance(value, type) else None
        if number is not None:
            return b"k%d\n" % number
        # An answer must not be able to break its episode by what it gives.
        if value is Remote:
            raise TypeError("the type of an object of the answer")
        if getattr(value, "cr_code", None) is awaited.__code__:
            if value.cr_frame is None:
                raise TypeError("a coroutine that has ended")
            return self.refer(value.cr_frame.f_locals["remote"])
        if isinstance(value, type):
            raise NotSupportedError(
                f"the tests give the answer the class {value.__name__}: only builtin classes, "
                "those of the set-up and some of the standard library can be given"
            )
        iterates = hasattr(value, "__next__") and not hasattr(value, "readline")
        if not callable(value) and not iterates:
            raise NotSupportedError(
                f"the tests give the answer a {type(value).__name__}: only builtin values, "
                "functions, iterators and instances of the set-up's classes can be given"
            )
        self.own.append(value)
        tag = b"g" if iterates else b"a" if is_mock(value) else b"w"
        return b"%s%d%s\n" % (tag, len(self.own) - 1, about(value))

    def resolve(self, tag: bytes, text: bytes, decoder: Decoder) -> Any:
        """The object for a reference of the answer."""
        words = text.decode().split(" ")
        number = int(words[0])
        if tag == b"h":
            if number not in self.remotes:
                self.remotes[number] = Remote(self, number, words[1])
            remote = self.remotes[number]
            # What it gives for a question is a result, although it may be the object itself.
            for ids in (self.made, self.combined, self.compared):
                ids.discard(id(remote))
            self.unclear.pop(id(remote), None)
            if not self.asks_class:
                self.results.add(id(remote))
            return remote if words[1] != "coroutine" else awaited(remote)
        if tag == b"q":
            if number not in self.errors:
                base = known_error(words[2]) or Exception
                self.errors[number] = type(words[1], (base,), {"_ale_number": number})
            return self.errors[number]
        if tag in b"wga" and tag:
            return self.own[number]
        raise ValueError("unknown tag")

    def ask(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Have the answer's process do something; its result, or its exception."""
        with self.lock:
            return self.asked(operation, arguments, options)

    def asked(self, operation: str, arguments: Any, options: Any) -> Any:
        """The same, while no other thread of the tests asks."""
        if operation not in READS:
            self.kept.clear()
            self.acts += 1
        target = arguments[0] if arguments else None
        asked_for = self.asked_for(operation, target)
        asked = arguments[1] if operation == "get" else None
        asks_class = operation == "names" or (type(asked) is str and asked == "__class__")
        request = ("do", operation, arguments, options, self.surroundings.now())
        message = self.twins.encoded(request, self.refer, self.shared, nested=self.depth > 0)
        try:
            self.depth += 1
            self.channel.send(message)
            while True:
                self.asks_class = asks_class
                kind, *rest = self.read()
                if kind in ("result", "error"):
                    if operation == "call":
                        self.last = (arguments, options, kind, rest)
                    if kind == "error":
                        raise local_error(operation, *rest)
                    self.note_made(target, rest[0], *asked_for)
                    return rest[0]
                self.channel.send(self.called(kind, *rest))
        except (Closed, Ended) as error:
            self.ended = True
            raise Ended(f"the answer ended: {error}") from None
        finally:
            self.depth -= 1

    def asked_for(self, operation: str, target: Any) -> tuple[bool, bool, bool, list[Any]]:
        """Four facts about a request.

        Whether it is a call; whether its target is a class that was a result; whether its operator
        combines objects that a test has made; and, of an operator, where its target is noted, and
        the name of a class if that is unclear.
        """
        noted: list[Any] = [ids for ids in (self.made, self.compared) if id(target) in ids]
        noted += filter(None, [self.unclear.get(id(target))])
        noted = noted if operation in ARITHMETIC else []
        return (
            operation == "call",
            id(target) in self.results,
            operation in ARITHMETIC and id(target) in self.made | self.combined,
            noted,
        )

    def note_made(
        self,
        target: Any,
        result: Any,
        is_call: bool,
        is_result: bool,
        is_combined: bool,
        noted: Sequence[Any],
    ) -> None:
        """Remember what a test makes: instances, and what operators make of them.

        Args:
            is_call: and the following, as of `asked_for`.
        """
        if type(result) is not Remote:
            return
        if name := is_call and self.names.get(id(target), ""):
            self.note_instance(name, target, result, is_result)
        elif is_combined:
            self.combined.add(id(result))
        for ids in noted:
            if type(ids) is str:
                self.unclear[id(result)] = ids
            elif ids is self.compared or result is target:
                ids.add(id(result))

    def note_instance(self, name: str, target: Any, result: Any, is_result: bool) -> None:
        """Remember what a test makes by a name of the answer."""
        if not name[:1].isupper():
            return
        self.made.add(id(result))
        if name in self.classes and not is_result:
            self.compared.add(id(result))
        is_class = object.__getattribute__(target, "_kind") == "type"
        if name in self.spelled and is_class and not is_result:
            self.unclear[id(result)] = name

    def may_combine(self, operation: str, target: Any) -> bool:
        """Whether an operator is given a value of the tests, for this object.

        Differences and quotients only of what the test itself has made: else they may be those of a
        result and what is expected.
        """
        is_difference = operation.lstrip("i") in ("sub", "truediv", "xor")
        allowed = self.made if is_difference else self.made | self.combined
        return self.combines and operation in ARITHMETIC and id(target) in allowed

    def read(self) -> Any:
        """A message of the answer; whatever is wrong with it ends the answer."""
        data = self.channel.receive()
        try:
            value = self.twins.decoded(data, self.resolve, self.shared)
            self.check_methods(self.twins.values)
            known_kind = value[0] in ("result", "error", "call", "next", "attribute")
        except Exception as error:
            raise Closed(f"it sent what can't be read: {error!r}") from None
        if type(value) is not tuple or not known_kind:
            raise Closed("it sent a message of an unknown kind")
        return value

    def check_methods(self, made: Sequence[Any]) -> None:
        """Objects of the set-up's classes keep its methods, which ``__eq__`` may call.

        Raises:
            ValueError: one has another, which the answer gave it.
        """
        for each in made:
            kind = type(each)
            if self.shared.get(kind.__name__) is not kind:
                continue
            for name, value in vars(each).items():
                own = type(value) is Remote or isinstance(value, type)
                if own and callable(getattr(kind, name, None)):
                    raise ValueError(f"a {kind.__name__} with another {name}")

    def take(self, names: Any) -> dict[str, Any]:
        """Objects of the answer by their names; those that it lacks are left out."""
        found = self.ask("names", *names)
        if type(found) is not dict:
            raise Ended("the answer sent no names")
        taken = {name: found[name] for name in names if name in found}
        self.names.update((id(v), name) for name, v in taken.items() if type(v) is Remote)
        return taken

    def last_call(self, shortened: Callable[[str], str]) -> str:
        """The last call of an object of the answer and what it gave, in words."""
        if self.last is None:
            return ""
        (function, *arguments), options, kind, rest = self.last
        words = [shortened(shown(value)) for value in arguments]
        words += [f"{name}={shortened(shown(value))}" for name, value in options.items()]
        call = f"{self.names.get(id(function), 'a function')}({', '.join(words)})"
        if kind == "error":
            return f"; {call} raised {shortened(str(rest[2]))}"
        return f"; {call} gave {shortened(shown(rest[0]))}"

    def called(self, kind: Any, arguments: Any, options: Any) -> bytes:
        """The answer calls a function of the tests."""
        try:
            number, *rest = arguments
            if kind == "attribute":
                reply: Any = ("result", attribute(self.own[number], *rest))
            else:
                function = self.own[number] if kind == "call" else self.own[number].__next__
                reply = ("result", function(*rest, **options))
        except Exception as error:
            names = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
            reply = ("error", names[0], tuple(a for a in error.args if type(a) is str))
        return self.twins.encoded(reply, self.refer, self.shared, nested=True)


def is_mock(value: Any) -> bool:
    """Whether it is an object of `unittest.mock`."""
    return type(value).__mro__[-2].__module__ == "unittest.mock"


def attribute(value: Any, name: Any) -> Any:
    """An attribute of a mock that tests or the answer have made, and none of its own methods.

    Raises:
        AttributeError: it is not to be had.
    """
    if not is_mock(value) or type(name) is not str or name[:1] == "_" or name in dir(type(value)):
        raise AttributeError(name)
    return getattr(value, name)


def about(function: Any) -> bytes:
    """The name of a function of the tests, and its docstring: for a decorator of the answer."""
    if type(function).__name__ not in ("function", "method", "builtin_function_or_method"):
        return b""
    words = [function.__name__, function.__doc__]
    return b"".join(b" " + w.encode("utf-8", "replace").hex().encode() for w in words if w)


def known_error(name: Any) -> Any:
    """An exception by its name: a builtin one, or one of a module that is loaded here.

    Those of modules for tests are left out: `unittest.SkipTest` would skip a test.
    """
    module, _, word = name.rpartition(".") if type(name) is str else ("", "", "")
    if module.partition(".")[0] in ("unittest", "doctest", "bdb"):
        return None
    owner = sys.modules.get(module) if module else builtins
    found = getattr(owner, word, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


ENDS: dict[Any, str] = {StopIteration: "next", StopAsyncIteration: "anext"}
"""Exceptions that end an iteration, and the request that may raise each or a class made of it."""


def local_error(
    operation: str,
    names: Any,
    arguments: Any,
    text: Any,
    own: Any = None,
    kept: Any = None,
    cause: Any = None,
) -> Exception:
    """An exception of the answer, as one of the same class here where it has one."""
    kinds = [own] if type(own) is type and issubclass(own, Exception) else []
    kinds += filter(None, map(known_error, names if type(names) is list else ()))
    for kind in kinds:
        # Only an iterator may end an iteration of the tests: all(map(...)) of them would be true.
        ends = [name for end, name in ENDS.items() if issubclass(kind, end)]
        if kind is Exception or (ends and operation not in ends):
            break
        try:
            error: Exception = kind(*arguments)
        except TypeError:
            continue
        if type(cause) is tuple:
            error.__cause__ = local_error("", *cause)
        if type(kept) is dict:
            vars(error).update((name, value) for name, value in kept.items() if type(name) is str)
        return error
    return AnswerError(str(text))


NUMERIC: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in (abs, round, bool, int, float)},
    "neg": _operator.neg,
    "index": _operator.index,
}
KEPT = {"plain", "len", "str", "repr", "hash", *NUMERIC}
"""Requests whose result is taken to be the same until the objects of the answer may have changed:
otherwise an object could be above one bound and below another."""
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
READS = {*KEPT, *COMPARISONS, "isinstance", "abstract", "names", "contains"}
"""Requests after which the objects of the answer are taken to be as they were."""
IN_PLACE = tuple("i" + name.strip("_") for name in OPERATORS)
ARITHMETIC = {*OPERATORS, "divmod", *("r" + name for name in (*OPERATORS, "divmod")), *IN_PLACE}
QUESTIONS = {"count", "index", "isdisjoint", "issubset", "issuperset"}
QUESTIONS |= {"difference", "intersection", "symmetric_difference", "union"}
"""Methods of builtin types that are given what a value is compared with."""
TEXTUAL = {name for name in dir(bytes) if name[:1] != "_"}
"""Methods of a `bytearray` that do not change it; all of a text are those of its plain value."""
FIXED = (bool, int, float, complex, str, bytes, tuple, frozenset)
PLAIN = (type(None), bool, int, float, complex, str, bytes, range)
DEEPEST = 5
"""Levels of a nested value in a message; it may contain itself."""


def shown(value: Any, limit: int = 200, depth: int = 0) -> str:
    """A value for a message; the answer is not asked what its objects look like."""
    if type(value) is Remote:
        return "an object of its own"
    if type(value) not in (list, tuple, dict, set, frozenset):
        return repr(value)[: limit + 3] if type(value) in PLAIN else "a " + type(value).__name__
    if depth == DEEPEST:
        return "..."
    parts = []
    for item in value.items() if type(value) is dict else value:
        if limit < 0:
            parts.append("...")
            break
        items = item if type(value) is dict else (item,)
        part = ": ".join(shown(each, limit, depth + 1) for each in items)
        parts.append(part)
        limit -= len(part)
    ends = "[]" if type(value) is list else "()" if type(value) is tuple else "{}"
    return ends[0] + ", ".join(parts) + ends[1]


class Remote:
    """An object of the answer. It equals nothing but what its own side gives as a plain value.

    `isinstance` is told what the object claims to be; here a Remote is known by its `type`.
    """

    __slots__ = ("_kind", "_number", "_peer")

    def __init__(self, peer: Peer, number: int, kind: str) -> None:
        for name, value in (("_peer", peer), ("_number", number), ("_kind", kind)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":
            return signature(self)
        value = fixed(self)
        if value is None and name in QUESTIONS | TEXTUAL and has_base(self):
            value = plain(self)
        if name[:1] != "_" and hasattr(value, name):
            return getattr(value, name)
        return ask(self, "get", name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return class_of(self)

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "set", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delete", name)

    def __format__(self, how: str) -> str:
        if not how:
            return str(self)
        made = format(plain(self), how) if has_base(self) else ask(self, "format", how)
        return made if type(made) is str else object.__format__(self, how)

    def __mro_entries__(self, bases: Any) -> Any:
        name = object.__getattribute__(self, "_peer").names.get(id(self), "")
        # Any answer may have something else where an exception is asked for, and just fails.
        if not name or name.endswith(("Error", "Exception", "Warning")):
            raise TypeError(f"{name or 'an object of the answer'} is no exception")
        raise NotSupportedError(f"the tests derive a class from {name}, which the answer defines")

    def __copy__(self) -> Any:
        return ask(self, "copy")

    def __deepcopy__(self, memo: Any) -> Any:
        return ask(self, "deepcopy")

    def __hash__(self) -> int:
        if has_base(self):
            return hash(plain(self))
        return int(HASH(self))

    def __contains__(self, value: Any) -> bool:
        known = fixed(self)
        if known is not None:
            return value in known
        if type(value) is Remote or is_compared(self):
            found = ask(self, "contains", value)
            if type(found) is not bool:
                raise TypeError("`in` of an object of the answer: no bool")
            return found and (type(value) is Remote or distinguishes(self, "contains", value))
        try:
            items = iter(self)
        except TypeError:
            may_compare(self)
            raise
        return any(item is value or item == value for item in items)

    def __instancecheck__(self, value: Any) -> bool:
        return type(value) is Remote and ask(value, "isinstance", self) is True

    def __subclasscheck__(self, value: Any) -> bool:
        return type(value) is Remote and ask(value, "issubclass", self) is True

    def __aiter__(self) -> Any:
        made = ask(self, "aiter")
        return made if type(made) is Remote else self

    async def __anext__(self) -> Any:
        return ask(self, "anext")

    async def __aenter__(self) -> Any:
        return ask(self, "aenter")

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return left(self, "aexit", error, trace)

    def __await__(self) -> Any:
        yield from ()
        return ask(self, "await")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return left(self, "exit", error, trace)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if id(self) in object.__getattribute__(self, "_peer").made:
            raise NotSupportedError("the tests pickle an object of a class of the answer")
        raise TypeError("an object of the answer can't be pickled")

    def __iter__(self) -> Any:
        known = fixed(self)
        made = ask(self, "iter") if known is None else iter(known)
        return made if type(made) is Remote else iter(made)


def ask(remote: Any, operation: str, *arguments: Any, **options: Any) -> Any:
    """Have the answer's process do something with an object of its own."""
    peer = object.__getattribute__(remote, "_peer")
    if operation not in KEPT:
        return peer.ask(operation, remote, *arguments, **options)
    number = object.__getattribute__(remote, "_number")
    key = (operation, number, *((type(each), each) for each in arguments))
    if key not in peer.kept:
        peer.kept[key] = peer.ask(operation, remote, *arguments)
    return peer.kept[key]


def left(remote: Any, operation: str, error: Any, trace: Any) -> bool:
    """Leave the context of an object of the answer; whether it hides the exception."""
    if not isinstance(error, Exception):
        ask(remote, operation)
        return False
    peer = object.__getattribute__(remote, "_peer")
    may = may_hide(error, trace, peer.test, peer.names.values())
    kind: Any = type(error)
    if not may:
        # Of a class that can't be given, one that it derives from: an answer must not be able to
        # break its episode by what is raised.
        kind = next(each for each in kind.__mro__ if TYPES.get(each.__name__) is each or own(each))
    hides = ask(remote, operation, kind, [a for a in error.args if type(a) in PLAIN])
    return hides is True and may


def own(kind: Any) -> bool:
    """Whether a class is one of the answer's exceptions."""
    return "_ale_number" in vars(kind)


def has_base(remote: Any) -> bool:
    """Whether its class derives from a builtin type."""
    return bool(object.__getattribute__(remote, "_kind") == "b")


def fixed(remote: Any) -> Any:
    """Its plain value, where its class derives from a type whose values never change; or None.

    Methods of the answer's own would be given values of the tests: startswith(expected).
    """
    value = plain(remote) if has_base(remote) else None
    return value if type(value) in FIXED else None


async def awaited(remote: Any) -> Any:
    """What stands for a coroutine of the answer; its own side runs it to its end."""
    return ask(remote, "await")


def signature(remote: Any) -> Any:
    """Of a function of the answer, for `inspect.signature`."""
    import inspect

    empty = inspect.Parameter.empty
    parts, returned = ask(remote, "signature")
    made = [
        inspect.Parameter(
            name,
            inspect._ParameterKind(kind),
            default=default[0] if default else empty,
            annotation=annotation[0] if annotation else empty,
        )
        for name, kind, default, annotation in parts
    ]
    return inspect.Signature(made, return_annotation=returned[0] if returned else empty)


def class_of(remote: Any) -> Any:
    """The class that `isinstance` asks for."""
    kind = object.__getattribute__(remote, "_kind")
    if kind == "type":
        return type
    if kind in ("function", "generator"):
        import types

        return types.FunctionType if kind == "function" else types.GeneratorType
    return type(plain(remote)) if kind == "b" else ask(remote, "get", "__class__")


def plain(remote: Any) -> Any:
    """The plain value of an object whose class derives from a builtin type.

    Raises:
        TypeError: its own side gives another object instead.
    """
    value = ask(remote, "plain")
    if type(value) is Remote:
        raise TypeError("the answer's object has no plain value")
    return value


def one_sided(operation: str) -> Any:
    """A method that asks the answer's process, with the arguments of the test."""
    return lambda self, *arguments, **options: ask(self, operation, *arguments, **options)


def numeric(operation: str) -> Any:
    """A method of numbers: of the plain value where there is one, or else asked for."""

    def method(self: Any, *arguments: Any) -> Any:
        if has_base(self):
            return NUMERIC[operation](plain(self), *arguments)
        return ask(self, operation, *arguments)

    return method


def typed(operation: str, kind: Any) -> Any:
    """A method whose result has to be of a builtin type."""

    def method(self: Any) -> Any:
        if operation in NUMERIC and has_base(self):
            return NUMERIC[operation](plain(self))
        known = fixed(self) if operation == "len" else None
        result = ask(self, operation) if known is None else len(known)
        if type(result) is not kind:
            raise TypeError(f"{operation}() of an object of the answer: no {kind.__name__}")
        return result

    return method


def two_sided(operation: str, reflected: bool) -> Any:
    """An operator. Only another object of the answer is sent, never a value of the tests.

    Otherwise the object could say that it equals whatever it is compared with, and it would learn
    the expected value. With a value of the tests the object's plain value is used, if it has one.
    """

    name = "r" + operation if reflected else operation
    function = divmod if operation == "divmod" else getattr(_operator, operation)

    def method(self: Any, other: object, *modulo: Any) -> Any:
        if type(other) is Remote:
            return ask(self, operation, other, *modulo)
        if object.__getattribute__(self, "_peer").may_combine(operation, self):
            return ask(self, name, other, *modulo)
        if not has_base(self):
            return compared(self, operation, other) if operation in COMPARISONS else NotImplemented
        if modulo:
            return pow(plain(self), other, *modulo)
        return function(other, plain(self)) if reflected else function(plain(self), other)

    return method


def compared(remote: Any, operation: str, other: Any) -> Any:
    """The result of an object's own method for it and a value, where it may be given that."""
    if not may_compare(remote):
        return NotImplemented
    found = ask(remote, operation, other)
    if found is not True or operation == "ne":
        return found
    return distinguishes(remote, operation, other)


def distinguishes(remote: Any, operation: str, value: Any) -> bool:
    """Whether an object that is said to equal a value says no of some others, and yes again of it.

    Which of these values the test has is not to be seen. One that is above, equal to or below
    everything, or holds it, has decided nothing.
    """
    if operation in ("lt", "le", "gt", "ge") and not isinstance(value, (int, float)):
        return True
    refused = 0
    for other in others(value):
        if other is value:
            if ask(remote, operation, other) is not True:
                return False
            continue
        try:
            refused += ask(remote, operation, other) is not True
        except Exception:  # raised by the answer's own code: no yes
            refused += 1
    return refused > 1


def in_place_of(operation: str) -> Any:
    """An operator such as ``+=``, with the same values as the one without ``=``."""

    def method(self: Any, other: object) -> Any:
        may_combine = object.__getattribute__(self, "_peer").may_combine
        if type(other) is Remote or may_combine(operation, self):
            return ask(self, operation, other)
        return NotImplemented

    return method


def is_compared(remote: Any) -> bool:
    """Whether it is given a value of the tests that it is compared with."""
    return id(remote) in object.__getattribute__(remote, "_peer").compared


def may_compare(remote: Any) -> bool:
    """The same.

    Raises:
        NotSupportedError: only the spelling says that a class has made it.
    """
    if name := object.__getattribute__(remote, "_peer").unclear.get(id(remote)):
        raise NotSupportedError(
            f"the tests compare {name}(...) with a value, and it may be an object of a class or "
            f"the result of a function: add a test such as isinstance({name}(...), {name})"
        )
    return is_compared(remote)


class Kinds(type):
    """The class of `Kind`."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        """The class of a value, or a new class."""
        if cls is not Kind or len(arguments) != 1 or options:
            return super().__call__(*arguments, **options)
        value = arguments[0]
        found = type(value)
        if found is Remote:
            named = object.__getattribute__(value, "_kind") in ("type", "function", "generator")
            own = class_of(value) if named else ask(value, "get", "__class__")
            # A class of Python's own would be a claim of the answer.
            found = own if named or type(own) is Remote else Remote
        return Kind if found is type else found

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type) if cls is Kind else super().__instancecheck__(value)

    def __subclasscheck__(cls, value: Any) -> bool:
        return issubclass(value, type) if cls is Kind else super().__subclasscheck__(value)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls is Kind and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is Kind else super().__hash__()


class Kind(type, metaclass=Kinds):
    """The builtin `type`, which also knows the class of an object of the answer."""


# Not those of this class, with which an object would be a `Remote` to the tests.
Remote.__doc__ = property(lambda self: ask(self, "get", "__doc__"))  # type: ignore[assignment]

for _method, _operation in {
    "call": "call",
    "next": "next",
    "getitem": "item",
    "setitem": "set item",
    "delitem": "delete item",
    "enter": "enter",
}.items():
    setattr(Remote, f"__{_method}__", one_sided(_operation))
for _operation in ("reversed", "invert", "pos", "floor", "ceil", "trunc"):
    setattr(Remote, f"__{_operation}__", one_sided(_operation))
for _operation in ("abs", "round", "neg"):
    setattr(Remote, f"__{_operation}__", numeric(_operation))
for _kind in (bool, int, float, str, repr):
    _type = str if _kind is repr else _kind
    setattr(Remote, f"__{_kind.__name__}__", typed(_kind.__name__, _type))
for _operation in ("bytes", "complex"):
    setattr(Remote, f"__{_operation}__", typed(_operation, getattr(builtins, _operation)))
HASH = typed("hash", int)
for _operation in ("len", "index"):
    setattr(Remote, f"__{_operation}__", typed(_operation, int))
for _operation in OPERATORS:
    _name = _operation.strip("_")
    setattr(Remote, f"__{_name}__", two_sided(_operation, False))
    setattr(Remote, f"__r{_name}__", two_sided(_operation, True))
for _operation in IN_PLACE:
    setattr(Remote, f"__{_operation}__", in_place_of(_operation))
for _operation in (*COMPARISONS, "divmod"):
    setattr(Remote, f"__{_operation}__", two_sided(_operation, False))
Remote.__rdivmod__ = two_sided("divmod", True)  # type: ignore[attr-defined]
