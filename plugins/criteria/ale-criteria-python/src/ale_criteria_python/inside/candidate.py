"""The process in which the answer runs. Nothing in it is believed; it can send values only."""

from __future__ import annotations

import _operator
import _signal  # type: ignore[import-not-found]
import builtins
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from ale_criteria_python.inside.wire import Decoder, Plan, Shared

if __name__ != "ale_grading":
    from ale_criteria_python.inside.channel import (
        PR_SET_DUMPABLE,
        PR_SET_PDEATHSIG,
        Channel,
        Closed,
        control,
        silence,
    )
    from ale_criteria_python.inside.twins import Twins
    from ale_criteria_python.inside.wire import BASES, OPERATORS, Encoder, base_value


def from_module(module: str, name: str) -> Any:
    """A function of Python's library, imported when it is asked for."""
    return getattr(__import__(module), name)


def found_module(name: str) -> Any:
    """A module of Python's library."""
    return __import__(name, None, None, ["*"])


def raised(kind: Any = None, arguments: Any = ()) -> tuple[Any, Any, Any]:
    """An exception of the tests, as a context manager is given it."""
    return (kind, None if kind is None else kind(*arguments), None)


def in_place(name: str) -> Any:
    """The operator that changes its first operand, if that can be changed."""
    return getattr(_operator, "i" + name.strip("_"))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda f, *a, **k: f(*a, **k),
    "get": getattr,
    "set": setattr,
    "plain": base_value,
    "isinstance": isinstance,
    "issubclass": issubclass,
    "signature": lambda f: signature_of(f),
    "contains": _operator.contains,
    **{
        name: lambda v, *a, name=name, **k: from_module("dataclasses", name)(v, *a, **k)
        for name in ("asdict", "astuple", "fields", "is_dataclass", "replace")
    },
    "await": lambda v: finished(awaiting(v)),
    "aiter": lambda v: type(v).__aiter__(v),
    "anext": lambda v: finished(type(v).__anext__(v)),
    "aenter": lambda v: finished(type(v).__aenter__(v)),
    "aexit": lambda v, *error: finished(type(v).__aexit__(v, *raised(*error))),
    "item": _operator.getitem,
    "set item": _operator.setitem,
    "delete item": _operator.delitem,
    "enter": lambda v: type(v).__enter__(v),
    "exit": lambda v, *error: type(v).__exit__(v, *raised(*error)),
    "abstract": lambda v, module, name: isinstance(v, getattr(found_module(module), name)),
    **{f.__name__: f for f in (len, iter, next, bool, str, repr, int, float, abs, round, dir)},
    **{f.__name__: f for f in (hash, reversed, bytes, complex, format)},
    **{
        name: lambda v, name=name: from_module("math", name)(v)
        for name in ("floor", "ceil", "trunc")
    },
    **{name: lambda v, name=name: from_module("copy", name)(v) for name in ("copy", "deepcopy")},
    "delete": delattr,
    "index": _operator.index,
    **{
        name: getattr(_operator, name)
        for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert")
    },
}
OPERATIONS.update((name, getattr(_operator, name)) for name in OPERATORS)
OPERATIONS.update(divmod=divmod, pow=pow)
OPERATIONS.update(("i" + name.strip("_"), in_place(name)) for name in OPERATORS)
OPERATIONS.update(
    ("r" + name, lambda value, other, name=name: OPERATIONS[name](other, value))
    for name in (*OPERATORS, "divmod")
)
"""What the tests can ask for, by name."""


LOOP: list[Any] = []


async def awaiting(value: Any) -> Any:
    """What a value gives when it is awaited."""
    return await value


def finished(awaitable: Any) -> Any:
    """Run to its end, in the one event loop."""
    import asyncio

    if not LOOP:
        LOOP.append(asyncio.new_event_loop())
    return LOOP[0].run_until_complete(awaiting(awaitable))


def signature_of(function: Any) -> Any:
    """Parameters (name, kind, default, annotation) and what is returned, for the tests."""
    import inspect

    found = inspect.signature(function)

    def given(value: Any) -> Any:
        return () if value is found.empty else (value,)

    parts = [
        (each.name, int(each.kind), given(each.default), given(each.annotation))
        for each in found.parameters.values()
    ]
    return parts, given(found.return_annotation)


class Candidate:
    """Answers the requests of the tests."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.twins = channel, Twins()
        self.shared: Shared = {}
        self.depth = 0
        """Requests that are being answered."""
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.scope: Plan = {}

    def load(self, setup: str, answer: str) -> None:
        """Run the set-up and the answer as a module named ``answer``.

        An answer that continues the set-up, as the body of a function does, is not Python by
        itself, and is joined to it.
        """
        module = type(sys)("answer")
        sys.modules["answer"] = module
        self.scope = vars(module)
        # Its own, so that what tests replace there is not replaced for this program.
        self.scope["__builtins__"] = dict(vars(builtins))
        try:
            code = compile(answer, "<answer>", "exec", dont_inherit=True)
        except SyntaxError as error:
            try:
                joined = compile(setup + answer, "<set-up and answer>", "exec", dont_inherit=True)
            except (SyntaxError, ValueError):
                raise error from None
            exec(joined, self.scope)  # noqa: S102
            return
        exec(compile(setup, "<set-up>", "exec", dont_inherit=True), self.scope)  # noqa: S102
        self.shared = {
            name: value
            for name, value in self.scope.items()
            if isinstance(value, type) and value.__module__ == "answer"
        }
        exec(code, self.scope)  # noqa: S102

    def refer(self, value: Any) -> bytes:
        """A reference, by which the tests can ask for what the object does."""
        if type(value).__module__ == "datetime" and getattr(value, "tzinfo", None) is not None:
            # Of a zone that the tests do not have: it is the same time with a fixed one.
            offset = value.utcoffset()
            if offset is not None:
                fixed = from_module("datetime", "timezone")(offset, value.tzname() or "")
                part = Encoder(self.refer, {})
                part.write(value.replace(tzinfo=fixed))
                return part.done()
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        if isinstance(value, type) and issubclass(value, Exception):
            base = known_names(value)[0]
            return b"q%d %s %s\n" % (number, value.__name__.encode(), base.encode())
        return b"h%d %s\n" % (number, kind_of(value))

    def resolve(self, tag: bytes, text: bytes, decoder: Decoder) -> Any:
        """The object that a reference stands for."""
        if tag == b"k":
            return self.objects[int(text)]
        number, *about = text.split(b" ")
        kind = Mock if tag == b"a" else OfTests
        return kind(self, int(number), tag == b"g", [bytes.fromhex(e.decode()) for e in about])

    def send(self, value: Any) -> None:
        """A message to the tests."""
        nested = self.depth > 1 or value[0] in ("call", "next", "attribute")
        self.channel.send(self.twins.encoded(value, self.refer, self.shared, nested=nested))

    def exchange(self, request: Any, *arguments: Any, **options: Any) -> Any:
        """Ask the tests for something, and wait for the result."""
        self.send((request, arguments, options))
        return self.serve()

    def serve(self) -> Any:
        """Answer requests until the tests give the result of our own."""
        while True:
            message = self.channel.receive()
            kind, *rest = self.twins.decoded(message, self.resolve, self.shared)
            if kind == "result":
                return rest[0]
            if kind == "error":
                raise getattr(builtins, rest[0], RuntimeError)(*rest[1])
            self.depth += 1
            self.answer(rest)
            self.depth -= 1

    def answer(self, request: Any) -> None:
        """Do what is asked for, and send the result and what has changed in the arguments."""
        operation, arguments, options, given = request
        # Nothing but the answer itself is to keep the arguments.
        request.clear()
        try:
            before_it = self.surround(given)
            try:
                if operation == "names":
                    result = {name: self.scope[name] for name in arguments if name in self.scope}
                else:
                    result = OPERATIONS[operation](*arguments, **options)
            finally:
                self.surround(before_it)
            reply: Any = ("result", result)
        except Exception as error:
            reply = self.error(error)
        del arguments, options, given
        try:
            self.send(reply)
        except Exception as error:
            self.send(self.error(error))

    def surround(self, given: Plan) -> Plan:
        """Replace streams and functions; what they were before."""
        before: dict[str, Any] = {}
        for name, value in given.items():
            if name in KEEPS:
                KEEPS[name](value)
                continue
            module, _, attribute = name.rpartition(".")
            if module == "builtins":
                scope = self.scope["__builtins__"]
            else:
                scope = vars(found_module(module))
            before[name] = scope[attribute]
            is_stream = module == "sys" and type(value) is OfTests
            scope[attribute] = Stream(value) if is_stream else value
        return before

    def error(self, error: BaseException) -> Any:
        """What the tests are told about an exception."""
        arguments = tuple(a for a in error.args if type(a) in PLAIN_ARGUMENTS)
        own = type(error) if type(error).__module__ == "answer" else None
        kept = {
            name: value for name, value in vars(error).items() if type(value) in PLAIN_ARGUMENTS
        }
        cause = None if error.__cause__ is None else self.error(error.__cause__)[1:6]
        names = known_names(type(error))
        return ("error", names, arguments, describe(error), own, kept, cause)


def set_environment(changed: dict[str, str | None]) -> None:
    """Set variables, and remove those that are None."""
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def forward_warnings(function: Any) -> None:
    """Have the tests' process warn instead; its filters decide."""
    import warnings

    def show(message: Any, category: Any, *place: Any) -> None:
        given = message.args if isinstance(message, Warning) else (message,)
        function(category, [each if type(each) in PLAIN_ARGUMENTS else str(each) for each in given])

    warnings.simplefilter("always")
    warnings.showwarning = show  # type: ignore[assignment]


def forward_logs(function: Any) -> None:
    """Have loggers of the tests' process log as well; their levels and handlers decide."""
    import logging

    is_enabled, handle = logging.Logger.isEnabledFor, logging.Logger.handle

    def forward(self: Any, record: Any) -> None:
        function(self.name, self.level, record.levelno, record.getMessage())
        if is_enabled(self, record.levelno):
            handle(self, record)

    logging.Logger.isEnabledFor = lambda self, level: True  # type: ignore[method-assign]
    logging.Logger.handle = forward  # type: ignore[method-assign]


PLAIN_ARGUMENTS = (str, int, float, bool, type(None))
KEEPS: dict[str, Callable[[Any], Any]] = {
    "warnings": forward_warnings,
    "logs": forward_logs,
    "random": lambda state: __import__("random").setstate(state),
    "environment": set_environment,
    "folder": lambda path: os.chdir(path or HOME[0]),
}
"""Setters of the state that stays until the tests set it again."""
HOME: list[str] = []
"""The folder in which the answer was loaded."""


class OfTests:
    """A function or an iterator of the tests, called by the answer."""

    def __init__(
        self, candidate: Candidate, number: int, iterates: bool, about: Sequence[bytes] = ()
    ) -> None:
        self._ask, self._number, self._iterates = candidate.exchange, number, iterates
        self.__doc__ = about[1].decode("utf-8", "replace") if about[1:] else None
        if about:
            self.__name__ = self.__qualname__ = about[0].decode("utf-8", "replace")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function of the tests."""
        return self._ask("call", self._number, *arguments, **options)

    def __iter__(self) -> Any:
        if not self._iterates:
            raise TypeError("a function of the tests is not iterable")
        return self

    def __next__(self) -> Any:
        return self._ask("next", self._number)


class Mock(OfTests):
    """A mock of the tests."""

    def __getattr__(self, name: str) -> Any:
        return self._ask("attribute", self._number, name)


class Stream:
    """A standard stream that tests have replaced: one to read lines from, or to write to."""

    def __init__(self, function: Any) -> None:
        self.readline = self.write = function

    def __iter__(self) -> Any:
        return iter(self.readline, "")

    def read(self) -> str:
        """All that is left."""
        return "".join(self)

    def readlines(self) -> list[str]:
        """All that is left, by lines."""
        return list(self)

    def flush(self) -> None:
        """Nothing waits."""

    @property
    def buffer(self) -> Any:
        """The same in bytes."""
        return Bytes(self)


class Bytes:
    """A stream of the tests, in bytes."""

    def __init__(self, text: Stream) -> None:
        self.text, self.flush = text, text.flush

    def write(self, data: Any) -> int:
        """Write bytes."""
        self.text.write(bytes(data).decode())
        return len(data)

    def readline(self) -> bytes:
        """A line."""
        return bytes(self.text.readline().encode())

    def __iter__(self) -> Any:
        return iter(self.readline, b"")

    def read(self) -> bytes:
        """All that is left."""
        return b"".join(self)

    def readlines(self) -> list[bytes]:
        """All that is left, by lines."""
        return list(self)


def kind_of(value: Any) -> bytes:
    """What the tests are told of an object; they do not rely on it."""
    if isinstance(value, BASES):
        return b"b"
    name = type(value).__name__.encode()
    if name in (b"function", b"generator", b"coroutine"):
        return name
    return b"type" if isinstance(value, type) else b"-"


def known_names(kind: Any) -> list[str]:
    """The exceptions of Python that a class derives from, nearest first."""
    return [
        base.__name__ if base.__module__ == "builtins" else base.__module__ + "." + base.__name__
        for base in kind.__mro__
        if base.__module__ != "answer"
    ]


def describe(error: BaseException) -> str:
    """Class, message and line of an exception, without the modules that would format it better."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in ("<answer>", "<set-up and answer>"):
            line = trace.tb_lineno
        trace = trace.tb_next
    place = "" if line is None else f" (line {line} of the answer)"
    return f"{type(error).__name__}: {str(error)[:500]}{place}"


def become_candidate(socket: Any, plan: Plan, folder: str) -> NoReturn:
    """Turn this process into the one of the answer; never returns."""
    try:
        os.setsid()
        silence()
        keep = socket.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 256)
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        control(PR_SET_DUMPABLE, 1)
        control(PR_SET_PDEATHSIG, 9)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        HOME.append(folder)
        sys.path += plan["paths"]
        sys.argv = ["answer"]
        sys.setrecursionlimit(sys.getrecursionlimit() + 10)  # the frames below the answer's own
        candidate = Candidate(Channel(socket))
        try:
            candidate.load(plan["setup"], plan["answer"])
        except BaseException as error:
            candidate.send(("result", describe(error)))
        else:
            candidate.send(("result", None))
            candidate.serve()
    except (Closed, SystemExit):
        os._exit(1)
    finally:
        os._exit(1)
