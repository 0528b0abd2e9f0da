"""Styles in which asserts are written: a right answer passes each, a wrong one none."""

from collections.abc import Awaitable, Callable

import pytest

from ale.errors import GradingError
from ale.types import Score

Grade = Callable[..., Awaitable[Score]]

MOCK = "from unittest.mock import patch, Mock\n"

# By style: an answer, what to replace in it to make it wrong, and the test.
STYLES: dict[str, tuple[str, tuple[str, str], str]] = {
    "objects in sets and as keys": (
        "class P:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __eq__(self, o):\n        return self.x == o.x\n"
        "    def __hash__(self):\n        return hash(self.x)\n",
        ("hash(self.x)", "id(self)"),
        "assert len({P(1), P(1), P(2)}) == 2\nassert {P(1): 'a'}[P(1)] == 'a'",
    ),
    "random numbers that are seeded again": (
        "import random\ndef f():\n    return [random.random() for _ in range(3)]\n",
        ("random.random()", "random.SystemRandom().random()"),
        "from random import seed\nseed(4)\na = f()\nseed(4)\nassert f() == a",
    ),
    "operators with one operand": (
        "import math\nclass N:\n    def __pos__(self):\n        return 5\n"
        "    def __invert__(self):\n        return 6\n    def __floor__(self):\n        return 7\n"
        "    def __reversed__(self):\n        return iter([2, 1])\n"
        "    def __bytes__(self):\n        return b'x'\n"
        "    def __complex__(self):\n        return 1j\n"
        "    def __format__(self, how):\n        return '<' + how + '>'\n",
        ("[2, 1]", "[1, 2]"),
        "import math\nn = N()\nassert (+n, ~n, math.floor(n)) == (5, 6, 7)\n"
        "assert list(reversed(n)) == [2, 1]\nassert (bytes(n), complex(n)) == (b'x', 1j)\n"
        "assert f'{n:>3}' == '<>3>'",
    ),
    "attributes of an exception": (
        "class E(Exception):\n    def __init__(self, code):\n        super().__init__('bad')\n"
        "        self.code = code\ndef f():\n    raise E(7)\n",
        ("E(7)", "E(8)"),
        "try:\n    f()\n    assert False\nexcept E as error:\n    assert error.code == 7",
    ),
    "attributes that are deleted, and copies": (
        "class A:\n    def __init__(self):\n        self.x = 1\n",
        ("self.x = 1", "self.x = 2"),
        "import copy\na = A()\nb, c = copy.copy(a), copy.deepcopy(a)\ndel a.x\n"
        "assert not hasattr(a, 'x') and b.x == c.x == 1",
    ),
    "input in bytes": (
        "import sys\ndef f():\n    sys.stdout.buffer.write(b'out')\n"
        "    return sum(map(int, sys.stdin.buffer.read().split()))\n",
        ("b'out'", "b'no'"),
        "import io, sys\nsys.stdin = io.TextIOWrapper(io.BytesIO(b'3\\n1 2 3'))\n"
        "sys.stdout = io.StringIO()\nassert f() == 9\nassert sys.stdout.getvalue() == 'out'",
    ),
    "threads of the tests": (
        "class C:\n    def __init__(self):\n        self.n = 0\n"
        "    def inc(self):\n        self.n += 1\n",
        ("+= 1", "+= 2"),
        "import threading\nc = C()\nts = [threading.Thread(target=c.inc) for _ in range(8)]\n"
        "[t.start() for t in ts]\n[t.join() for t in ts]\nassert c.n == 8",
    ),
    "a type as an argument": (
        "def f(values, kind):\n    return [v for v in values if not isinstance(v, kind)]\n",
        ("not isinstance", "isinstance"),
        "assert f([1, 'a', 2.5], int) == ['a', 2.5]\nassert f([1, 'a'], (int, str)) == []\n"
        "assert f([True, 1], bool) == [1]",
    ),
    "a type that is compared": (
        "def f(value, kind):\n    return type(value) is kind\n",
        ("is kind", "is not kind"),
        "assert f(1, int)\nassert f([], list)\nassert f(None, type(None))\nassert not f(1, str)",
    ),
    "a type that is called": (
        "def f(values, kind):\n    return kind(values)\n",
        ("kind(values)", "values"),
        "assert f([1, 1], set) == {1}\nassert f('ab', list) == ['a', 'b']",
    ),
    "a type as the result": (
        "def f(value):\n    return type(value)\n",
        ("type(value)", "str"),
        "assert f(3) is int\nassert f(3) == int\nassert f(2.0) in (int, float)\n"
        "assert f([]).__name__ == 'list'",
    ),
    "a type of the library": (
        "from decimal import Decimal\ndef f(kind):\n    return kind('1.5'), kind is Decimal\n",
        ("kind is Decimal", "False"),
        "from decimal import Decimal\nassert f(Decimal) == (Decimal('1.5'), True)",
    ),
    "an exception's class as a value": (
        "def f(kind):\n    try:\n        raise kind('x')\n    except ValueError:\n"
        "        return ValueError\n    except Exception:\n        return None\n",
        ("return ValueError", "return KeyError"),
        "assert f(ValueError) is ValueError\nassert f(KeyError) is None",
    ),
    "keys compared with a set": (
        "def f(d):\n    return d.keys()\n",
        ("d.keys()", "d.values()"),
        "assert f({1: 3, 2: 4}) == {1, 2}\nassert f({1: 3}) | {5} == {1, 5}",
    ),
    "items compared with a set": (
        "def f(d):\n    return d.items()\n",
        ("d.items()", "d.keys()"),
        "assert f({1: 2}) == {(1, 2)}\nassert list(f({1: 2})) == [(1, 2)]",
    ),
    "views as arguments": (
        "def f(keys, values):\n    return dict(zip(keys, values))\n",
        ("zip(keys", "zip(values"),
        "d = {1: 2, 3: 4}\nassert f(d.keys(), d.values()) == d",
    ),
    "a coroutine that is run": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1\n",
        ("x + 1", "x"),
        "import asyncio\nassert asyncio.run(f(1)) == 2",
    ),
    "coroutines that are gathered": (
        "async def f(x):\n    if x < 0:\n        raise ValueError('low')\n    return x * x\n",
        ("'low'", "'high'"),
        "import asyncio\nasync def main():\n    found = await asyncio.gather(f(2), f(3))\n"
        "    try:\n        await f(-1)\n    except ValueError as error:\n"
        "        return found, str(error)\nassert asyncio.run(main()) == ([4, 9], 'low')",
    ),
    "an asynchronous iteration": (
        "async def f(n):\n    for i in range(n):\n        yield i\n",
        ("yield i", "yield n"),
        "import asyncio\nasync def main():\n    return [x async for x in f(3)]\n"
        "assert asyncio.run(main()) == [0, 1, 2]",
    ),
    "an asynchronous context": (
        "class A:\n    async def __aenter__(self):\n        self.open = True\n        return self\n"
        "    async def __aexit__(self, *error):\n        self.open = False\n",
        ("self.open = False", "pass"),
        "import asyncio\nasync def main():\n    async with A() as a:\n        assert a.open\n"
        "    return a.open\nassert asyncio.run(main()) is False",
    ),
    "the signature": (
        "def f(a, b=2, *rest, key: int = 3) -> str:\n    return ''\n",
        ("b=2", "c=2"),
        "import inspect\nfound = inspect.signature(f)\n"
        "assert list(found.parameters) == ['a', 'b', 'rest', 'key']\n"
        "assert found.parameters['b'].default == 2\nassert found.return_annotation is str",
    ),
    "what is a function, a class, a generator": (
        "def f():\n    'Says.'\n    yield 1\nclass A:\n    'Is.'\n",
        ("yield 1", "return 1"),
        "import inspect, types\nassert inspect.isfunction(f) and inspect.isclass(A)\n"
        "assert isinstance(f(), types.GeneratorType)\nassert inspect.isgeneratorfunction(f)\n"
        "assert (f.__name__, f.__doc__, A.__doc__) == ('f', 'Says.', 'Is.')\nassert callable(f)",
    ),
    "a subclass": (
        "class A:\n    pass\nclass B(A):\n    pass\nclass E(ValueError):\n    pass\n",
        ("class B(A)", "class B"),
        "assert issubclass(B, A) and not issubclass(A, B)\nassert isinstance(B(), A)\n"
        "assert issubclass(E, ValueError)",
    ),
    "output that is redirected": (
        "def f(x):\n    print('got', x)\n",
        ("'got'", "'has'"),
        "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stdout(out):\n"
        "    f(3)\nf(4)\nassert out.getvalue() == 'got 3\\n'",
    ),
    "sys.stdout that is replaced": (
        "import sys\ndef f():\n    sys.stdout.write('a')\n    sys.stdout.flush()\n",
        ("'a'", "'b'"),
        "import io, sys\nkept, sys.stdout = sys.stdout, io.StringIO()\ntry:\n    f()\n"
        "    found = sys.stdout.getvalue()\nfinally:\n    sys.stdout = kept\nassert found == 'a'",
    ),
    "output of a program's errors": (
        "import sys\ndef f():\n    print('no', file=sys.stderr)\n",
        ("sys.stderr", "sys.stdout"),
        "import contextlib, io\nout = io.StringIO()\nwith contextlib.redirect_stderr(out):\n"
        "    f()\nassert out.getvalue() == 'no\\n'",
    ),
    "input from sys.stdin": (
        "import sys\ndef f():\n    return int(input()) + sum(map(int, sys.stdin.read().split()))\n",
        ("int(input())", "1"),
        "import io, sys\nsys.stdin = io.StringIO('3\\n4 5\\n')\nassert f() == 12",
    ),
    "lines of sys.stdin": (
        "import sys\ndef f():\n    return [line.strip() for line in sys.stdin]\n",
        ("line.strip()", "line"),
        "import io, sys\nsys.stdin = io.StringIO('a\\nb\\n')\nassert f() == ['a', 'b']",
    ),
    "input that is patched": (
        "def f():\n    return int(input('first')) - int(input('second'))\n",
        ("'second'", "'other'"),
        MOCK + "with patch('builtins.input', side_effect=['5', '3']) as asked:\n"
        "    assert f() == 2\nassert [c.args for c in asked.mock_calls] == "
        "[('first',), ('second',)]",
    ),
    "print that is patched": (
        "def f(x):\n    print('x', x, sep='=')\n",
        ("sep='='", "sep=':'"),
        MOCK + "with patch('builtins.print') as printed:\n    f(1)\n"
        "printed.assert_called_once_with('x', 1, sep='=')",
    ),
    "a function of the library that is patched": (
        "import random\ndef f():\n    return random.randint(1, 6) + 1\n",
        ("+ 1", "+ 2"),
        MOCK + "with patch('random.randint', return_value=4):\n    assert f() == 5",
    ),
    "a function that is patched as an attribute": (
        "import time\ndef f():\n    time.sleep(1000)\n    return time.time()\n",
        ("time.time()", "1"),
        MOCK + "import time\n"
        "with patch.object(time, 'sleep') as slept, patch.object(time, 'time', lambda: 5.0):\n"
        "    assert f() == 5.0\nslept.assert_called_once_with(1000)",
    ),
    "a function that is assigned": (
        "def f():\n    return input() * 2\n",
        ("* 2", "* 3"),
        "import builtins\nbuiltins.input = lambda prompt='': '7'\nassert f() == '77'",
    ),
    "a mock that is called": (
        "def f(call):\n    return call(1, key=2)\n",
        ("key=2", "key=3"),
        MOCK + "call = Mock(return_value=9)\nassert f(call) == 9\n"
        "call.assert_called_once_with(1, key=2)",
    ),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\n"
        "def f():\n    return P(1, 2)\n",
        ("P(1, 2)", "P(2, 1)"),
        "assert isinstance(f(), tuple)\nx, y = f()\nassert (x, y) == (1, 2) == f()\n"
        "assert f()._asdict() == {'x': 1, 'y': 2}\nassert f()[-1] == 2\nassert len(f()) == 2",
    ),
    "a class that derives from str": (
        "class S(str):\n    pass\ndef f():\n    return S('hello')\n",
        ("'hello'", "'help'"),
        "assert 'ell' in f()\nassert f().startswith('hell')\nassert f().split('l') == "
        "['he', '', 'o']\nassert isinstance(f(), str)\nassert f()[1:3] == 'el'",
    ),
    "an enumeration": (
        "from enum import Enum, IntEnum\nclass C(Enum):\n    RED = 'r'\n"
        "class N(IntEnum):\n    ONE = 1\ndef f():\n    return C.RED, N.ONE\n",
        ("RED = 'r'", "RED = 's'"),
        "assert f()[0].value == 'r'\nassert f()[0].name == 'RED'\nassert f()[0] == C.RED\n"
        "assert f()[1] == 1\nassert C('r') is C.RED\nassert [c.name for c in C] == ['RED']",
    ),
    "properties and class methods": (
        "class T:\n    def __init__(self, c):\n        self._c = c\n    @property\n"
        "    def f(self):\n        return self._c * 9 / 5 + 32\n    @classmethod\n"
        "    def of(cls, f):\n        return cls((f - 32) * 5 / 9)\n    @staticmethod\n"
        "    def unit():\n        return 'C'\n",
        ("+ 32", "+ 30"),
        "assert T(100).f == 212\nassert T.of(212)._c == 100\nassert T.unit() == 'C'",
    ),
    "an exception with the test's own handling": (
        "def f(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x ** 0.5\n",
        ("x < 0", "x < -9"),
        "try:\n    f(-1)\nexcept ValueError as error:\n    assert 'negative' in str(error)\n"
        "else:\n    raise AssertionError('no error')\nassert f(4) == 2",
    ),
    "unittest's own asserts": (
        "def f(x):\n    if x is None:\n        raise TypeError\n    return [x / 3, x]\n",
        ("x / 3", "x / 4"),
        "import unittest\ncase = unittest.TestCase()\ncase.assertAlmostEqual(f(1)[0], 0.3333333)\n"
        "case.assertEqual(f(3), [1.0, 3])\nwith case.assertRaises(TypeError):\n    f(None)\n"
        "case.assertIsInstance(f(3), list)\ncase.assertCountEqual(f(3), [3, 1])",
    ),
    "an operator with a number": (
        "class V:\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n"
        "    def __mul__(self, k):\n        return V(self.x * k, self.y * k)\n"
        "    __rmul__ = __mul__\n    def __radd__(self, other):\n        return self\n"
        "    def __add__(self, other):\n        return V(self.x + other.x, self.y + other.y)\n"
        "    def __eq__(self, other):\n        return (self.x, self.y) == (other.x, other.y)\n",
        ("self.x * k", "self.x"),
        "assert V(1, 2) * 3 == V(3, 6)\nv = V(1, 2)\nw = 2 * v * 2\nassert (w.x, w.y) == (4, 8)\n"
        "assert sum([v, V(1, 1)]).x == 2\nv *= 5\nassert v.x == 5",
    ),
    "a decorator": (
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a):\n"
        "        return f(f(*a))\n    return g\n",
        ("f(f(*a))", "f(*a)"),
        "@twice\ndef inc(x):\n    return x + 1\nassert inc(1) == 3",
    ),
    "functions of dataclasses": (
        "from dataclasses import dataclass\n@dataclass\nclass D:\n    x: int = 0\n"
        "    y: list = None\n",
        ("y: list", "z: list"),
        "import dataclasses\nfrom dataclasses import asdict, replace\n"
        "assert asdict(D(1)) == {'x': 1, 'y': None}\nassert replace(D(1), x=2).x == 2\n"
        "assert [f.name for f in dataclasses.fields(D)] == ['x', 'y']\n"
        "assert dataclasses.is_dataclass(D(1)) and dataclasses.astuple(D(1)) == (1, None)",
    ),
    "a function of the tests that is wrapped": (
        "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def g(*a):\n"
        "        return f(*a)\n    return g\n",
        ("    @functools.wraps(f)\n", ""),
        "@deco\ndef foo(x):\n    'Says.'\n    return x\n"
        "assert (foo.__name__, foo.__doc__, foo(3)) == ('foo', 'Says.', 3)",
    ),
    "a result that is a UUID": (
        "import uuid\ndef f():\n    return uuid.UUID(int=5)\n",
        ("int=5", "int=6"),
        "import uuid\nassert f() == uuid.UUID(int=5) and isinstance(f(), uuid.UUID)",
    ),
    "times with a zone": (
        "from datetime import datetime, time, timedelta, timezone, tzinfo\n"
        "from zoneinfo import ZoneInfo\nclass Own(tzinfo):\n"
        "    def utcoffset(self, at):\n        return timedelta(hours=2)\n"
        "    def tzname(self, at):\n        return 'own'\n"
        "def f(zone):\n    return datetime(2020, 1, 1, 4, tzinfo=zone)\n"
        "def g():\n    return f(ZoneInfo('UTC')), f(Own()), time(4, tzinfo=timezone.utc)\n"
        "def h(at):\n    return at.utcoffset()\n",
        ("1, 1, 4", "1, 1, 5"),
        "from datetime import datetime, time, timedelta, timezone\nfrom zoneinfo import ZoneInfo\n"
        "utc = datetime(2020, 1, 1, 4, tzinfo=timezone.utc)\nassert f(timezone.utc) == utc\n"
        "assert f(timezone.utc).tzinfo is timezone.utc\nassert f(ZoneInfo('UTC')) == utc\n"
        "assert g() == (utc, utc - timedelta(hours=2), time(4, tzinfo=timezone.utc))\n"
        "assert h(utc) == timedelta(0)",
    ),
    "a defaultdict": (
        "from collections import defaultdict\ndef f():\n    return defaultdict(list, {1: [2]})\n"
        "def g(d):\n    return d['new']\n",
        ("{1: [2]}", "{1: [3]}"),
        "from collections import defaultdict\nd = f()\nassert d == {1: [2]} and d[5] == []\n"
        "d[7].append(1)\nassert d[7] == [1]\nassert g(defaultdict(lambda: 3)) == 3",
    ),
    "the type of an object of the answer": (
        "class P:\n    pass\nclass Q(P):\n    pass\n",
        ("class Q(P):\n    pass", "Q = P"),
        "assert type(P()) is P and type(Q()) is not P\nassert P().__class__ is P\n"
        "assert type(P()).__name__ == 'P'\nassert type(3) is int and type(P) is type\n"
        "assert isinstance(int, type) and type(int) == type and type('A', (), {}).__name__ == 'A'",
    ),
    "variables that the tests set": (
        "import os\ndef f():\n    return os.getenv('ALE_T')\n",
        ("'ALE_T'", "'ALE_U'"),
        "import os\nfrom unittest.mock import patch\nos.environ['ALE_T'] = 'x'\n"
        "assert f() == 'x'\nwith patch.dict(os.environ, {'ALE_T': 'y'}):\n    assert f() == 'y'\n"
        "assert f() == 'x'\ndel os.environ['ALE_T']\nassert f() is None",
    ),
    "a folder that the tests enter": (
        "import os\ndef f():\n    return os.listdir('.')\n",
        ("listdir('.')", "listdir('..')"),
        "import os, tempfile\nbefore, start = os.getcwd(), f()\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    open(folder + '/a', 'w').close()\n    os.chdir(folder)\n    assert f() == ['a']\n"
        "    os.chdir(before)\nassert f() == start",
    ),
    "an object of a class that is compared with a value": (
        "class V:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __eq__(self, o):\n        return self.x == getattr(o, 'x', o)\n"
        "    def __lt__(self, o):\n        return self.x < getattr(o, 'x', o)\n",
        ("self.x <", "self.x >"),
        "assert isinstance(V(3), V)\nassert V(3) == 3 and 3 == V(3) and V(3) != 4\n"
        "assert V(3) < 4 and 4 > V(3) and not V(3) < 3",
    ),
    "a value in an object of a class": (
        "class B:\n    def __contains__(self, k):\n        return k == 1\n",
        ("k == 1", "True"),
        "assert 1 in B() and 2 not in B()",
    ),
    "operators that change an object": (
        "class M:\n    def __init__(self):\n        self.n = 0\n"
        "    def __iadd__(self, k):\n        self.n += k\n        return self\n"
        "    def __isub__(self, k):\n        self.n -= k\n        return self\n",
        ("+= k", "= k"),
        "m = k = M()\nm += 3\nm += 4\nassert m.n == 7 and m is k\nm -= 2\nassert m.n == 5",
    ),
    "a memo that is asked": (
        "from functools import lru_cache\n@lru_cache(None)\ndef f(n):\n"
        "    return n if n < 2 else f(n - 1) + f(n - 2)\n",
        ("n < 2", "n < 3"),
        "assert f(30) == 832040\nassert f.cache_info().hits > 0",
    ),
    "time that is measured": (
        "def f(n):\n    return n * (n + 1) // 2\n",
        ("+ 1", "+ 2"),
        "import time\nbegun = time.perf_counter()\nassert f(10 ** 6) == 500000500000\n"
        "assert time.perf_counter() - begun < 60",
    ),
    "random input against a reference": (
        "def f(xs):\n    return sorted(xs)\n",
        ("sorted(xs)", "xs"),
        "import random\nrandom.seed(1)\nfor _ in range(20):\n"
        "    xs = [random.randint(0, 99) for _ in range(9)]\n    assert f(list(xs)) == sorted(xs)",
    ),
    "random numbers of a seed": (
        "import random\ndef f():\n    return random.randint(0, 10 ** 9)\n",
        ("10 ** 9", "10 ** 8"),
        "import random\nrandom.seed(7)\nexpected = [random.randint(0, 10 ** 9) for _ in 'ab']\n"
        "random.seed(7)\nassert [f(), f()] == expected",
    ),
    "a sum that is close": (
        "def f(xs):\n    return sum(xs) / len(xs)\n",
        ("len(xs)", "2"),
        "import math\nassert math.isclose(f([0.1, 0.2, 0.3]), 0.2)\n"
        "assert round(f([1, 2, 4]), 2) == 2.33\nassert abs(f([1.5]) - 1.5) < 1e-9",
    ),
    "a comprehension over results": (
        "def f(n):\n    return n % 2 == 0\n",
        ("== 0", "== 1"),
        "assert [n for n in range(5) if f(n)] == [0, 2, 4]\nassert all(map(f, [2, 4]))\n"
        "assert not any(f(n) for n in (1, 3))\nassert list(filter(f, range(3))) == [0, 2]",
    ),
    "text that is sorted by the answer": (
        "def f(word):\n    return len(word)\n",
        ("len(word)", "-len(word)"),
        "assert sorted(['ccc', 'a', 'bb'], key=f) == ['a', 'bb', 'ccc']\n"
        "assert max('a bb'.split(), key=f) == 'bb'",
    ),
    "a list that a context manager changes": (
        "class C:\n    def __init__(self, l):\n        self.l = l\n"
        "    def __enter__(self):\n        self.l.append(1)\n        return self\n"
        "    def __exit__(self, *error):\n        self.l.append(2)\n",
        ("append(2)", "append(3)"),
        "l = []\nwith C(l):\n    assert l == [1]\nassert l == [1, 2]",
    ),
    "a list that the answer keeps": (
        "class C:\n    def __init__(self, l):\n        self.l = l\n"
        "    def add(self, x):\n        self.l.append(x)\n"
        "    def n(self):\n        return len(self.l)\n",
        ("self.l = l", "self.l = list(l)"),
        "l = []\nc = C(l)\nc.add(3)\nassert l == [3]\nl.append(4)\nassert c.n() == 2\n"
        "c.l.append(5)\nassert l == [3, 4, 5] and c.l is l",
    ),
    "copies of an object with a list": (
        "class A:\n    def __init__(self):\n        self.l = [1]\n",
        ("self.l = [1]", "self.l = [2]"),
        "import copy\na = A()\nb, c = copy.deepcopy(a), copy.copy(a)\na.l.append(2)\n"
        "assert b.l == [1] and c.l == [1, 2] == a.l and c.l is a.l",
    ),
    "containers of the library that are changed": (
        "def f(d, c, q):\n    d[1].append(2)\n    c['a'] += 1\n    q.append(3)\n",
        ("q.append(3)", "q.append(4)"),
        "from collections import Counter, defaultdict, deque\n"
        "d, c, q = defaultdict(list), Counter('a'), deque([1, 2], maxlen=2)\nf(d, c, q)\n"
        "assert d == {1: [2]} and c == {'a': 2} and q == deque([2, 3], maxlen=2)",
    ),
    "a list that is given to a function of the tests": (
        "def f(call):\n    x = [1]\n    call([x, x])\n    return x\n",
        ("[x, x]", "[x, [1]]"),
        "def call(xs):\n    xs[0].append(2)\n    assert xs[0] is xs[1]\nassert f(call) == [1, 2]",
    ),
    "a variable of the answer that is set again": (
        "n, found = 0, []\ndef f():\n    global n, found\n    n += 1\n    found = found + [n]\n",
        ("n += 1", "n += 2"),
        "f()\nf()\nassert n == 2 and found == [1, 2]",
    ),
    "an exception that a context manager hides": (
        "from contextlib import contextmanager\n@contextmanager\ndef hide(kind):\n    try:\n"
        "        yield\n    except kind:\n        pass\nclass C:\n"
        "    def __enter__(self):\n        return self\n"
        "    def __exit__(self, kind, error, trace):\n        self.seen = (kind, str(error))\n"
        "        return kind is ValueError\n",
        ("kind is ValueError", "False"),
        "def bad():\n    raise KeyError('k')\nc = C()\nwith c:\n    raise ValueError('x')\n"
        "assert c.seen == (ValueError, 'x')\nwith hide(ZeroDivisionError):\n    1 / 0\n"
        "    assert False\nwith hide(KeyError):\n    bad()\ntry:\n    with c:\n        bad()\n"
        "    assert False\nexcept KeyError:\n    assert c.seen[0] is KeyError",
    ),
    "logs that tests capture": (
        "import logging\nlog = logging.getLogger('m')\ndef f():\n    log.info('got %s', 3)\n",
        ("'got %s'", "'has %s'"),
        "import io, logging, unittest\nwith unittest.TestCase().assertLogs('m') as found:\n"
        "    f()\nassert found.output == ['INFO:m:got 3']\nout = io.StringIO()\n"
        "logging.getLogger('m').addHandler(logging.StreamHandler(out))\nf()\n"
        "assert out.getvalue() == ''\nlogging.getLogger('m').setLevel(logging.INFO)\nf()\n"
        "assert out.getvalue() == 'got 3\\n'",
    ),
    "warnings that tests record": (
        "from warnings import warn\ndef f():\n    warn('old', DeprecationWarning)\n    return 3\n",
        ("'old'", "'new'"),
        "import unittest, warnings\nwith warnings.catch_warnings(record=True) as found:\n"
        "    warnings.simplefilter('always')\n    assert f() == 3\n"
        "assert [str(w.message) for w in found] == ['old']\n"
        "with unittest.TestCase().assertWarns(DeprecationWarning):\n    f()\n"
        "warnings.simplefilter('error')\ntry:\n    f()\n    assert False\n"
        "except DeprecationWarning:\n    pass",
    ),
    "operators with two results, and with three operands": (
        "class M:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __divmod__(self, k):\n        return divmod(self.x, k)\n"
        "    def __rdivmod__(self, k):\n        return divmod(k, self.x)\n"
        "    def __pow__(self, e, m=None):\n        return M(pow(self.x, e, m))\n"
        "    def __lshift__(self, k):\n        self.x = self.x << k\n        return self\n",
        ("divmod(self.x, k)", "divmod(k, self.x)"),
        "assert divmod(M(7), 3) == (2, 1) and divmod(7, M(3)) == (2, 1)\n"
        "assert pow(M(2), 3, 5).x == 3\nm = M(1)\nm << 1 << 2\nassert m.x == 8",
    ),
    "exceptions of the library, and their causes": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int\n"
        "def f():\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n"
        "        raise ValueError('x') from error\n",
        ("frozen=True", "frozen=False"),
        "from dataclasses import FrozenInstanceError\ntry:\n    A(1).x = 2\n    assert False\n"
        "except FrozenInstanceError:\n    pass\ntry:\n    f()\nexcept ValueError as error:\n"
        "    assert isinstance(error.__cause__, ZeroDivisionError)\n",
    ),
    "an abstract class of the library": (
        "from collections.abc import Sequence\nclass A(Sequence):\n"
        "    def __len__(self):\n        return 2\n    def __getitem__(self, i):\n"
        "        return [5, 6][i]\n",
        ("class A(Sequence)", "class A"),
        "from collections.abc import Iterable, Mapping, Sequence\nassert list(A()) == [5, 6]\n"
        "assert isinstance(A(), Sequence) and not isinstance(A(), Mapping)",
    ),
    "methods of a mock": (
        "def f(db):\n    db.open('x')\n    return db.get(3) + 1\n",
        ("'x'", "'y'"),
        MOCK + "db = Mock()\ndb.get.return_value = 8\nassert f(db) == 9\n"
        "db.open.assert_called_once_with('x')",
    ),
    "objects whose class is told, and a number": (
        "class Money:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __eq__(self, o):\n        return self.x == getattr(o, 'x', o)\n"
        "    def __hash__(self):\n        return hash(self.x)\n"
        "    def __add__(self, o):\n        return Money(self.x + o.x)\n"
        "    def __lt__(self, o):\n        return self.x < getattr(o, 'x', o)\n",
        ("self.x + o.x", "self.x - o.x"),
        "assert Money(3) == 3 and 3 == Money(3) and Money(3) != 4 and Money(3) < 4\n"
        "assert Money(1) + Money(2) == 3\nassert {Money(1), Money(1)} == {1}\n"
        "assert sorted([Money(2), Money(1)]) == [1, 2] and Money(1) in [2, 1]",
    ),
    "a class of numbers that are equal by their rest": (
        "class Money:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __eq__(self, o):\n        return (self.x - o) % 2 == 0\n"
        "    def __contains__(self, o):\n        return 0 <= o <= self.x\n",
        ("(self.x - o)", "(self.x - o + 1)"),
        "assert Money(3) == 7 and 5 in Money(9)",
    ),
}


@pytest.mark.parametrize("style", STYLES)
async def test_a_right_answer_passes_and_a_wrong_one_does_not(grade: Grade, style: str) -> None:
    code, (right, wrong), test = STYLES[style]
    assert right in code
    goal = "Write a class Money."
    score = await grade(code, test, goal=goal)
    assert score.passed, score.detail
    score = await grade(code.replace(right, wrong), test, goal=goal)
    assert score.value == 0.0, score.detail


async def test_a_program_that_reads_when_it_is_loaded_has_the_input_of_the_set_up(
    grade: Grade,
) -> None:
    options = {"setup": "import io, sys\nsys.stdin = io.StringIO('3 4\\n')\n"}
    code = "a, b = map(int, input().split())\ntotal = a + b\n"
    assert (await grade(code, "assert total == 7", **options)).passed
    assert not (await grade(code.replace("a + b", "a"), "assert total == 7", **options)).passed


_CLASSES = (
    "class Base:\n    def __enter__(self):\n        pass\n"
    "    def __exit__(self, *a):\n        pass\n"
    "class V:\n    def __init__(self, x):\n        self.x = x\n"
    "    def __eq__(self, other):\n        return self.x == other\n"
    "class Vector(V):\n    def __add__(self, other):\n        return self\n"
)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("class A:\n    pass\nassert f(A())", "the tests give the answer a A"),
        ("class A:\n    pass\nassert f(A)", "the tests give the answer the class A"),
        (
            "match Base():\n    case Base():\n        f(1)",
            r"`case Base\(...\)` of a class that the",
        ),
        ("f(0)\nassert V(3) == 3", "compare V\\(...\\) with a value, and it may be an object of a"),
        ("assert 1 in V(3)", "compare V\\(...\\) with a value, and it may be an object of a"),
        ("assert Vector(3) == 3", "compare Vector\\(...\\) with a value, and it may be"),
        ("assert Vector(3) + Vector(4) == 3", "compare Vector\\(...\\) with a value, and it"),
        (
            "class Own(Exception):\n    pass\nwith Base():\n    raise Own",
            "the tests give the answer the class Own",
        ),
        ("import io\nf(io.StringIO('a'))", "the tests give the answer a StringIO"),
        ("import pickle\npickle.dumps(Vector(3))", "the tests pickle an object of a class"),
        ("class A(Base):\n    pass\nassert A", "the tests derive a class from Base, which the"),
        (
            MOCK + "import datetime\nwith patch('datetime.datetime') as now:\n    f(1)",
            "the tests replace datetime.datetime, which is no function",
        ),
    ],
)
async def test_what_can_not_be_carried_breaks_the_episode_and_is_no_zero(
    grade: Grade, test: str, message: str
) -> None:
    for answer in ("return True", "return 0"):
        with pytest.raises(GradingError, match=message):
            await grade(f"{_CLASSES}def f(x):\n    {answer}", test)


_TRUE = (
    "class Any:\n    def __init__(self, *a):\n        pass\n"
    "    def __eq__(self, other):\n        return True\n    __lt__ = __contains__ = __eq__\n"
)


@pytest.mark.parametrize(
    ("code", "test"),
    [
        # A function by its use: the value is what is asked for.
        (_TRUE + "Extract = Any\n", "assert Extract([[1, 2]]) == [1]"),
        (_TRUE + "Extract = Any\n", "assert Extract([[1, 2]]) < 3"),
        # Results of an object of a class, though they are the object itself or made by its class.
        (
            _TRUE + "class Solution(Any):\n    def area(self):\n        return self\n",
            "s = Solution()\nassert s.area() == 9",
        ),
        (
            _TRUE + "class Solution(Any):\n    def area(self):\n        return [self]\n",
            "s = Solution()\nassert s.area() == [9]",
        ),
        (
            _TRUE + "class Solution(Any):\n    pass\nSolution.Area = Solution\n",
            "assert Solution().Area(3) == 9",
        ),
        (
            _TRUE + "class Solution(Any):\n    area = property(lambda self: self)\n",
            "s = Solution()\nassert s.area == 9 or 9 in s.area",
        ),
        (
            _TRUE + "class P(Any):\n    pass\ndef f(x):\n    return P(x)\n",
            "assert P().__class__ is P\nassert f(1) == 9",
        ),
        # An object that says that it is an int is of no builtin type.
        (
            "class A:\n    __class__ = int\ndef f(x):\n    return A()\n",
            "assert type(f(1)) is int",
        ),
    ],
)
async def test_only_what_a_test_made_itself_of_a_class_is_given_a_value(
    grade: Grade, code: str, test: str
) -> None:
    score = await grade(code, test, goal="Write a function to find it.")
    assert score.value == 0.0, score.detail
