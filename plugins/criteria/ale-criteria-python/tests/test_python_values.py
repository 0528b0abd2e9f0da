"""What tests can do with the answer although it runs in another process."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ale.errors import GradingError
from ale.types import Score
from ale_criteria_python.names import free_names
from ale_grading.signed_tests import by_clock

Grade = Callable[..., Awaitable[Score]]

VALUES = [
    "None, True, -7, 2 ** 200, 0.1 + 0.2, -0.0, float('inf'), 1j",
    "'', 'a\\n\\u20ac\\x00', '\\ud800', b'\\x00\\n', bytearray(b'ab')",
    "[], (), {}, set(), frozenset(), [[1], (2, [3])], {1: {'a': {2.5, 3}}}",
    "{0.1, 0.2, (1, 'x')}, range(3, 9, 2), slice(1, None)",
    "Counter('abca'), deque([1, 2]), OrderedDict(a=1), Decimal('1.10'), Fraction(1, 3)",
    "date(2024, 2, 29), timedelta(days=1, seconds=2)",
]
IMPORTS = (
    "from collections import Counter, deque, OrderedDict\nfrom decimal import Decimal\n"
    "from fractions import Fraction\nfrom datetime import date, timedelta\n"
)


@pytest.mark.parametrize("values", VALUES)
async def test_values_cross_with_their_exact_types(grade: Grade, values: str) -> None:
    score = await grade(
        f"def give():\n    return [{values}]\ndef echo(x):\n    return x",
        f"values = [{values}]\n"
        "for got in (give(), echo(values)):\n"
        "    assert [type(v) for v in got] == [type(v) for v in values]\n"
        "    assert repr(got) == repr(values) or got == values",
        setup=IMPORTS,
    )
    assert score.passed, score.detail


PASS = {
    "a class of the answer, as an argument and by its attributes": (
        "class Pair:\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n"
        "def total(pairs):\n    return sum(p.a * p.b for p in pairs)\n",
        "pair = Pair(1, b=2)\npair.b = 5\nassert pair.a + pair.b == 6\n"
        "assert total([pair, Pair(2, 2)]) == 9\nassert isinstance(pair, Pair)",
    ),
    "a tree built by the test": (
        "class Node:\n    def __init__(self, v):\n        self.v = v\n"
        "        self.left = self.right = None\n"
        "def height(n):\n    return 0 if n is None else 1 + max(height(n.left), height(n.right))\n",
        "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)\n"
        "assert height(root) == 3\nassert root.left is root.left\nassert root.right is None",
    ),
    "objects of the answer compared with each other": (
        "class P:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __eq__(self, other):\n        return self.x == other.x\n"
        "    def __add__(self, other):\n        return P(self.x + other.x)\n"
        "    def __lt__(self, other):\n        return self.x < other.x\n",
        "assert P(1) + P(2) == P(3)\nassert P(1) != P(2)\nassert P(1) < P(2)",
    ),
    "a named tuple and an enumeration, by their plain values": (
        "from collections import namedtuple\nfrom enum import IntEnum\n"
        "P = namedtuple('P', 'x y')\nclass E(IntEnum):\n    ONE = 1\n"
        "def f():\n    return P(1, 2)\ndef g():\n    return E.ONE\n",
        "assert f() == (1, 2)\nassert f().x == 1\nassert (1, 2) == f()\nassert g() == 1\n"
        "assert g() + 1 == 2\nassert 3 - g() == 2\nassert abs(g() - 1.0) < 1e-9",
    ),
    "a class that derives from dict and has methods": (
        "from collections import OrderedDict\nclass Cache(OrderedDict):\n"
        "    def put(self, k, v):\n        self[k] = v\n",
        "c = Cache()\nc.put(1, 2)\nassert c == {1: 2}\nassert c[1] == 2\nassert 1 in c\n"
        "assert len(c) == 1\nassert list(c) == [1]",
    ),
    "generators, maps and views": (
        "def up(n):\n    yield from range(n)\n"
        "def doubled(xs):\n    return map(lambda x: 2 * x, xs)\n"
        "def keys(d):\n    return d.keys()\n",
        "assert list(up(3)) == [0, 1, 2]\nassert next(up(1)) == 0\n"
        "assert sum(doubled([1, 2])) == 6\n"
        "assert sorted(keys({'b': 1, 'a': 2})) == ['a', 'b']\nassert 2 in up(3)",
    ),
    "arguments changed in place": (
        "def sort(xs):\n    xs.sort()\ndef add(d, s):\n    d['k'] = s\n    s.add(9)\n"
        "def nested(rows):\n    rows[0].append(rows)\n",
        "xs = [3, 1, 2]\nassert sort(xs) is None\nassert xs == [1, 2, 3]\n"
        "d, s = {}, {1}\nadd(d, s)\nassert s == {1, 9}\nassert d['k'] is s\n"
        "rows = [[]]\nnested(rows)\nassert rows[0][0] is rows",
    ),
    "functions and iterators of the test": (
        "def apply(f, x):\n    return f(f(x))\ndef total(xs):\n    return sum(xs)\n"
        "def safe(f):\n    try:\n        return f()\n    except ValueError as e:\n"
        "        return str(e)\n",
        "assert apply(lambda x: x + 1, 1) == 3\nassert total(x for x in [1, 2]) == 3\n"
        "def bad():\n    raise ValueError('no')\nassert safe(bad) == 'no'",
    ),
    "exceptions": (
        "class Own(ValueError):\n    pass\ndef f(x):\n    if x:\n        raise Own('a', 1)\n"
        "    raise KeyError('k')\n",
        "try:\n    f(0)\n    assert False\nexcept KeyError as e:\n    assert e.args == ('k',)\n"
        "try:\n    f(1)\n    assert False\nexcept Own as e:\n    assert e.args == ('a', 1)\n"
        "try:\n    f(1)\nexcept ValueError:\n    pass",
    ),
    "a function that hides a builtin": (
        "def sum(a, b):\n    return a - b\ndef other():\n    return 1\n",
        "assert sum(5, 3) == 2\nassert other() == 1",
    ),
    "escapes that Python warns of": (
        "import re\ndef f(x):\n    return re.sub('\\d', '', x)\n",
        "assert f('a1') == 'a\\d'[0]",
    ),
    "recursion as deep as in a program": (
        "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\n",
        "assert down(980) == 980",
    ),
    "values nested as deep as in a program": (
        "def nest(n):\n    found = []\n    for _ in range(n):\n        found = [found]\n"
        "    return found\n",
        "found, n = nest(900), 0\nwhile found:\n    found, n = found[0], n + 1\nassert n == 900",
    ),
    "what the answer prints and reads": (
        "print('hello')\nimport sys\nsys.stderr.write('x' * 100000)\ndef f():\n    print(1)\n"
        "    return sys.stdin.read()\n",
        "assert f() == ''",
    ),
    "modules that the test uses without an import": (
        "import math\nclass math:\n    isclose = lambda a, b: True\ndef f():\n    return 1.0\n",
        "assert math.isclose(f(), 1.0)\nassert not math.isclose(f(), 2.0)",
    ),
}


@pytest.mark.parametrize("name", PASS)
async def test_tests_do_with_the_answer_what_they_do_in_one_process(
    grade: Grade, name: str
) -> None:
    code, test = PASS[name]
    options = {"names": ("sum",)} if "builtin" in name else {}
    score = await grade(code, test, **options)
    assert score.passed, score.detail


SHARED = (
    "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n    y: int\n"
    "class Link:\n    def __init__(self, value, next=None):\n"
    "        self.value, self.next = value, next\n"
)


async def test_classes_of_the_set_up_are_the_same_on_both_sides_and_compared_by_the_tests(
    grade: Grade,
) -> None:
    score = await grade(
        "def move(p):\n    p.y += 1\n    return Point(p.x + 1, p.y)\n"
        "def reverse(link):\n    last = None\n    while link:\n"
        "        link.next, last, link = last, link, link.next\n    return last\n"
        "Point.__eq__ = lambda self, other: True\n",
        "p = Point(1, 2)\nassert move(p) == Point(2, 3)\nassert p == Point(1, 3)\n"
        "assert not move(p) == Point(0, 0)",
        "a = Link(1, Link(2))\nb = reverse(a)\nassert (b.value, b.next.value) == (2, 1)\n"
        "assert b.next is a\nassert a.next is None",
        setup=SHARED,
    )
    assert score.passed, score.detail


async def test_an_answer_may_go_on_where_the_set_up_ends(grade: Grade) -> None:
    prompt = 'def f(x):\n    """ Add one. """\n'
    options = {"setup": prompt, "names": ("f",)}
    assert (await grade("    y = x + 1\n    return y", "assert f(1) == 2", **options)).passed
    assert (await grade("def f(x):\n    return x + 1", "assert f(1) == 2", **options)).passed
    assert not (await grade("pass", "assert f(1) == 2", **options)).passed


async def test_the_detail_has_the_line_of_the_test_and_the_last_call(grade: Grade) -> None:
    score = await grade(
        "def f(x):\n    return [x] / 2 if x else 3",
        "assert f(0) == 3",
        "y = 0\nassert f(y) == 4",
        "assert f(x=1) == 4",
        "assert g() == 1",
        partial=True,
    )
    assert score.value == 0.25
    assert score.detail.splitlines()[1:] == [
        "test 2: AssertionError in `assert f(y) == 4`; f(0) gave 3",
        "test 3: TypeError: unsupported operand type(s) for /: 'list' and 'int' in "
        "`assert f(x=1) == 4`; f(x=1) raised TypeError: unsupported operand type(s) for /: 'list' "
        "and 'int' (line 2 of the answer)",
        "test 4: NameError: name 'g' is not defined in `assert g() == 1`; f(x=1) raised TypeError: "
        "unsupported operand type(s) for /: 'list' and 'int' (line 2 of the answer)",
    ]


async def test_an_answer_that_fails_one_test_of_three_gets_nothing_unless_parts_count(
    grade: Grade,
) -> None:
    tests = ("assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 4")
    assert (await grade("def f(x): return x", *tests)).value == 0.0
    assert (await grade("def f(x): return x", *tests, partial=False)).value == 0.0
    assert (await grade("def f(x): return x", *tests, partial=True)).value == 2 / 3


async def test_an_answer_that_can_not_be_loaded_fails_all_tests_and_says_where(
    grade: Grade,
) -> None:
    tests = ("assert f() == 1", "assert True")
    score = await grade("def f():\n    return 1\nf(2)", *tests)
    assert score.value == 0.0
    assert score.detail.splitlines()[1].startswith("test 1: the answer can't be loaded: TypeError")
    assert "(line 3 of the answer)" in score.detail
    assert "SyntaxError" in (await grade("def f(:", *tests)).detail


async def test_a_test_that_takes_too_long_fails_and_the_next_one_has_a_fresh_process(
    grade: Grade,
) -> None:
    score = await grade(
        "state = []\ndef f(x):\n    state.append(x)\n    while x == 2:\n        pass\n"
        "    return len(state)",
        "assert f(1) == 1",
        "assert f(2) == 0",
        "assert f(3) == 1",
        timeout_s=3.0,
        partial=True,
    )
    assert score.value == 2 / 3
    assert "test 2: not done in 3 s of CPU time" in score.detail
    assert score.timed_out


async def test_what_is_kept_waiting_has_more_time_than_what_computes(
    grade: Grade, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = "import time\ndef f(s):\n    time.sleep(s)\n    return 1"
    assert (await grade(waits, "assert f(1.0) == 1", timeout_s=0.5)).passed
    monkeypatch.setitem(by_clock.__globals__, "PATIENCE", 2.0)
    score = await grade(waits, "assert f(60) == 1", timeout_s=0.5)
    assert (score.value, score.timed_out) == (0.0, True)
    assert "test 1: not done in 1 s" in score.detail


async def test_time_of_threads_counts(grade: Grade) -> None:
    code = (
        "import threading\ndef f():\n    def spin():\n        while True:\n            pass\n"
        "    threading.Thread(target=spin, daemon=True).start()\n    threading.Event().wait()"
    )
    score = await grade(code, "assert f()", timeout_s=0.5)
    assert "test 1: not done in 0.5 s of CPU time" in score.detail


async def test_all_tests_together_have_a_time_limit(grade: Grade) -> None:
    score = await grade(
        "def f():\n    while True:\n        pass",
        *["assert f()"] * 9,
        timeout_s=0.5,
        total_timeout_s=1.2,
    )
    assert "test 1: not done in" in score.detail  # a busy machine reaches the longer limit first
    assert "test 5: the time for all tests was used up" in score.detail


async def test_memory_is_limited(grade: Grade) -> None:
    code = "def f(n):\n    return len(bytearray(n << 20))"
    tests = ("assert f(100) == 100 << 20", "assert f(2000) == 2000 << 20")
    score = await grade(code, *tests, memory_mb=500, partial=True)
    assert score.value == 0.5
    assert "test 2: MemoryError" in score.detail


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("class Own:\n    pass\nassert f(Own())", "the tests give the answer a Own"),
        ("f(object())", "the tests give the answer a object"),
    ],
)
async def test_tests_that_need_one_process_break_the_episode(
    grade: Grade, test: str, message: str
) -> None:
    with pytest.raises(GradingError, match=message):
        await grade("def f(x):\n    return True", test)


async def test_a_set_up_that_fails_breaks_the_episode(grade: Grade) -> None:
    with pytest.raises(GradingError, match="ModuleNotFoundError: No module named 'nowhere'"):
        await grade("def f():\n    return 1", "assert f() == 1", setup="import nowhere\n")


async def test_without_the_interpreter_the_episode_is_broken(grade: Grade) -> None:
    with pytest.raises(GradingError, match="could not be started with 'python-none'"):
        await grade("def f():\n    return 1", "assert f() == 1", python="python-none")


async def test_installed_packages_can_be_imported_by_both(grade: Grade) -> None:
    score = await grade(
        "import attrs\ndef f():\n    return attrs.__name__",
        "import attrs\nassert f() == attrs.__name__",
        python=sys.executable,
    )
    assert score.passed, score.detail


def test_names_of_the_answer_are_what_tests_use_and_nobody_defines() -> None:
    tests = ["import re\nfor x in f(1):\n    assert re.match(y, str(x))", "assert math.pi == g.a"]
    assert free_names(tests, "y = 1\ndef h(): ...\n") == (("f", "g"), ("math",))
    assert free_names(["assert math(1) == calendar.x"], "") == (("math",), ("calendar",))


async def test_a_python_that_can_not_hide_its_memory_grades_nothing(
    grade: Grade, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        "exec python3 -I -S -B -c \"import sys; sys.modules['_ctypes'] = None; exec(sys.argv[1])\" "
        '"$5" "$6"\n'
    )
    python.chmod(0o755)
    with pytest.raises(GradingError, match="prctl can't be called"):
        await grade("def f():\n    return 1", "assert f() == 1", python=str(python))
