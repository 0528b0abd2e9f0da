"""No answer passes without the right results; tests/e2e runs the same attacks in every sandbox."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.testing.waiting import until
from ale.types import Score
from ale_criteria_python.options import PythonTestsOptions
from ale_criteria_python.python_tests import PythonTests
from ale_criteria_python.testing import ATTACKS, MEMORY, RIGHT, TESTS, reading

Grade = Callable[..., Awaitable[Score]]


async def test_the_right_answer_passes(grade: Grade) -> None:
    score = await grade(RIGHT, *TESTS)
    assert score.passed, score.detail


@pytest.mark.parametrize("name", ATTACKS)
async def test_no_attack_passes_anything(grade: Grade, name: str) -> None:
    score = await grade(ATTACKS[name], *TESTS, partial=True)
    assert score.value == 0.0, score.detail
    assert score.detail


CHANGING = """
from itertools import cycle
class Zero:
    def __init__(self, *values):
        self.values = cycle(values)
    def {method}(self, *a):
        return next(self.values)
"""
POLY = (
    "import math\ndef poly(xs, x):\n    return sum(c * math.pow(x, i) for i, c in enumerate(xs))\n"
)


@pytest.mark.parametrize(
    ("method", "values", "test"),
    [
        # poly([1, 2], 3.0) is 7; with 0.0 and -0.5 in turns it is 0
        ("__float__", "3.0, -0.5", POLY + "assert abs(poly([1, 2], zero())) < 1e-4"),
        ("__int__", "9, -9", "z = zero()\nassert int(z) > 8 and int(z) < 1"),
        ("__index__", "2, 0", "z = zero()\nassert [5, 6, 7][z] == 7 and [5, 6, 7][z] == 5"),
        ("__bool__", "True, False", "z = zero()\nassert bool(z) and not bool(z)"),
        ("__str__", "'a', 'b'", "z = zero()\nassert str(z) == 'a' and str(z) == 'b'"),
        ("__repr__", "'a', 'b'", "z = zero()\nassert repr(z) == 'a' and repr(z) == 'b'"),
        ("__len__", "3, 4", "z = zero()\nassert len(z) == 3 and len(z) == 4"),
        ("__abs__", "3, 4", "z = zero()\nassert abs(z) == 3 and abs(z) == 4"),
        ("__round__", "3, 4", "z = zero()\nassert round(z) == 3 and round(z) == 4"),
        ("__neg__", "3, 4", "z = zero()\nassert -z == 3 and -z == 4"),
    ],
)
async def test_an_object_gives_one_answer_to_a_question(
    grade: Grade, method: str, values: str, test: str
) -> None:
    code = CHANGING.format(method=method) + f"def zero():\n    return Zero({values})\n"
    score = await grade(code, test)
    assert score.value == 0.0, score.detail


@pytest.mark.parametrize("base", ["str", "bytes", "bytearray"])
async def test_no_method_of_a_text_is_given_an_operand_of_the_tests(
    grade: Grade, base: str, tmp_path: Path
) -> None:
    code = (
        f"def told(self, *given):\n    open({str(tmp_path / 'told')!r}, 'a').write(repr(given))\n"
        "    return True\n"
        f"names = {{name for name in dir({base}) if name[0] != '_' or name in ('__eq__', '__ne__',"
        " '__contains__', '__lt__', '__add__', '__mod__', '__rmod__')}\n"
        f"Text = type('Text', ({base},), dict.fromkeys(names, told))\n"
        f"def f():\n    return Text({'' if base == 'str' else 'b'}'no')\n"
    )
    operand = "'it'" if base == "str" else "b'it'"
    methods = ("startswith", "endswith", "find", "count", "strip", "split", "removeprefix", "join")
    asked = [f"f().{name}({operand})" for name in methods]
    asked += [f"f() {sign} {operand}" for sign in ("==", "<", "+", "%")] + [f"{operand} in f()"]
    tests = [
        f"try:\n    {each}\nexcept TypeError:\n    pass\nassert f() == {operand}" for each in asked
    ]
    score = await grade(code, *tests, partial=True)
    assert score.value == 0.0, score.detail
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize(
    "test",
    [
        "assert f().startswith('expected')",
        "assert f().endswith('expected')",
        "assert f().count('expected') == 1",
        "assert f().find('expected') == 0",
        "assert 'expected' in f()",
        "assert f().replace('expected', '') == ''",
        "assert ''.join(f()) == 'expected'",
        "assert len(f()) == 8",
        "assert f().strip() == 'expected'",
    ],
)
async def test_methods_of_an_answer_are_not_given_what_a_text_is_compared_with(
    grade: Grade, test: str
) -> None:
    code = (
        "class Text(str):\n"
        "    startswith = endswith = lambda self, other: True\n"
        "    count = lambda self, other: 1\n    find = lambda self, other: 0\n"
        "    __contains__ = lambda self, other: True\n    replace = lambda self, *a: ''\n"
        "    __iter__ = lambda self: iter('expected')\n    __len__ = lambda self: 8\n"
        "    strip = lambda self: 'expected'\ndef f():\n    return Text('no')\n"
    )
    score = await grade(code, test)
    assert score.value == 0.0, score.detail


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("async def f(x):\n    pass\ndef g(x):\n    return 0\n", "assert g(f(1)) == 1"),
        (
            "class A:\n    pass\ndef f(x):\n    return A()\ndef g(x):\n    return 0\n",
            "assert g(type(f(1))) == 1",
        ),
        ("class AnError:\n    pass\n", "class B(AnError):\n    pass\nassert B('x').args == ('x',)"),
        ("class A:\n    pass\ndef f():\n    return A\n", "class B(f()):\n    x = 1\nassert B.x"),
        ("def f(x):\n    return 'print(1)'\ng = eval\n", "assert g(f(1)) == 1"),
        (
            "import json\nclass C:\n    def __enter__(self):\n        return self\n"
            "    def __exit__(self, *error):\n        return True\n"
            "    def get(self):\n        raise json.JSONDecodeError('no', 'x', 0)\n",
            "import json\nwith C() as c:\n    assert c.get() == 1",
        ),
        (
            "class C:\n    def __enter__(self):\n        return self\n"
            "    def __exit__(self, *error):\n        return True\ndef f(x):\n    return 0\n",
            "class Wrong(Exception):\n    pass\nwith C():\n    if f(1) != 1:\n        raise Wrong",
        ),
    ],
)
async def test_an_answer_can_not_break_its_episode_by_what_it_gives(
    grade: Grade, code: str, test: str
) -> None:
    score = await grade(code, test)
    assert score.value == 0.0, score.detail


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(Solution().f(3) - 9) < 1e-9",
        "s = Solution()\nassert s.f(3) - 9 == 0",
        "assert f(3) - 9 == 0",
        "assert 9 - f(3) == 0",
        "v = V(3)\nassert v * 2 == V(6)\nassert f(3) - 9 == 0",
        "v = V(3)\nassert v * 2 == V(6)\nassert v.f(3) - 9 == 0",
        "v = V(3)\nassert v * 2 == V(6)\nassert v.me() - 9 == 0",
        "assert (V(5) * 2) - 10 == 0",
    ],
)
async def test_an_operator_gives_no_result_the_value_that_is_expected(
    grade: Grade, test: str
) -> None:
    code = (
        "class V:\n    def __init__(self, *a):\n        pass\n"
        "    def __sub__(self, other):\n        return 0\n    __rsub__ = __sub__\n"
        "    def __mul__(self, other):\n        return self\n"
        "    def __eq__(self, other):\n        return True\n"
        "    def f(self, x):\n        return V()\nSolution = V\n"
        "V.me = lambda self: self\n"
        "def f(x):\n    return V()\n"
    )
    score = await grade(code, test)
    assert score.value == 0.0, score.detail


ENDS = (
    "class End(Stop{0}Iteration):\n    pass\nclass V:\n    def __init__(self, *a):\n        pass\n"
)
ENDS += (
    "    def __getattr__(self, name):\n        raise End\n    __len__ = __iter__ = lambda s: s.x\n"
)


@pytest.mark.parametrize(
    "test",
    [
        "assert all(map(f, [1, 2]))",
        "for found, wanted in zip(map(f, [1, 2]), [1, 4]):\n    assert found == wanted",
        "assert all(map(lambda x: V(x).value == 9, [1, 2]))",
        "assert all(map(lambda x: len(V(x)) == 9, [1, 2]))",
        "assert all(map(lambda x: list(V(x)) == [9], [1, 2]))",
    ],
)
async def test_a_class_made_of_stop_iteration_ends_no_iteration_of_the_tests(
    grade: Grade, test: str
) -> None:
    code = ENDS.format("") + "def f(x):\n    raise End\n"
    score = await grade(code, test)
    assert score.value == 0.0, score.detail


async def test_a_class_made_of_stop_iteration_ends_the_iteration_of_an_answer(grade: Grade) -> None:
    code = "class End(StopIteration):\n    pass\nclass V:\n    n = 0\n"
    code += "    def __iter__(self):\n        return self\n    def __next__(self):\n"
    code += "        self.n += 1\n        if self.n > 2:\n            raise End\n"
    code += "        return self.n\n"
    assert (await grade(code, "assert list(V()) == [1, 2]")).passed


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(F(3) - 9) < 1e-9",
        "found = F(3) - 9\nassert abs(F(3) - 9) < 1e-9",
        "assert F(3) % 9 == 0",
        "assert F(3) * 2 // 18 == 1",
        "assert F(9) + -9 == 0",
        "assert not F(3) - 9",
    ],
)
async def test_a_class_in_place_of_a_function_is_not_given_what_is_expected(
    grade: Grade, test: str
) -> None:
    code = "class F:\n    def __init__(self, *a):\n        pass\n    __mul__ = lambda s, o: s\n"
    code += "    __sub__ = __add__ = __mod__ = lambda s, o: 0\n    __floordiv__ = lambda s, o: 1\n"
    score = await grade(code, test)
    assert score.value == 0.0, score.detail


_EVERYTHING = (
    "class Money:\n    def __init__(self, *a):\n        pass\n"
    "    __eq__ = __lt__ = __gt__ = __contains__ = lambda self, o: {found}\n"
    "    __add__ = lambda self, o: self\n    n = 0\n"
    "    def step(self):\n        Money.n += 1\n        return Money.n\n"
)


@pytest.mark.parametrize("found", ["True", "type(o) is int", "self.step() == 1"])
@pytest.mark.parametrize(
    "test",
    [
        "assert Money(1) == 3",
        "assert 3 == Money(1)",
        "assert Money(1) + Money(2) == 3",
        "assert Money(1) < 3",
        "assert 3 in Money(1)",
        "assert Money(1) in [3]",
    ],
)
async def test_an_object_of_a_class_that_equals_everything_equals_nothing(
    grade: Grade, found: str, test: str
) -> None:
    score = await grade(_EVERYTHING.format(found=found), test, goal="Write a class Money.")
    assert score.value == 0.0, score.detail


@pytest.mark.parametrize(
    "test",
    [
        "with timer():\n    assert f(3) == 9",
        "with timer():\n    r = f(3)\n    assert r == 9",
        "with timer():\n    f(3)\n    check(9)",
        "def check(x):\n    if x != 9:\n        raise ValueError(x)\n"
        "with timer():\n    check(f(3))",
        "with timer():\n    with timer():\n        f(3)\n    assert f(3) == 9",
        "import unittest\nwith timer():\n    unittest.TestCase().assertEqual(f(3), 9)",
        "with timer():\n    if f(3) != 9:\n        raise ValueError",
        "def run():\n    with timer():\n        return f(3)\n    assert False\nassert run() == 9",
    ],
)
async def test_a_context_manager_hides_nothing_that_is_judged(grade: Grade, test: str) -> None:
    code = "class timer:\n    def __enter__(self):\n        return self\n"
    code += "    def __exit__(self, *error):\n        return True\n"
    for wrong in ("raise ValueError", "return 0"):
        score = await grade(code + f"def f(x):\n    {wrong}\n", test)
        assert score.value == 0.0, score.detail


@pytest.mark.parametrize(
    "does",
    [
        "m.assert_called_once_with = lambda *a: None",
        "m.configure_mock(assert_called_once_with=lambda *a: None)",
        "m.attach_mock(lambda *a: None, 'assert_called_once_with')",
        "m.__dict__['assert_called_once_with'] = print",
        "m._mock_methods",
        "m.reset_mock()",
    ],
)
async def test_a_mock_of_the_tests_keeps_its_own_methods(grade: Grade, does: str) -> None:
    code = f"def f(m):\n    try:\n        {does}\n    except Exception:\n        pass\n"
    test = "from unittest.mock import Mock\nm = Mock()\nf(m)\nm.assert_called_once_with(3)"
    assert (await grade(code, test)).value == 0.0


async def test_no_exception_of_an_answer_skips_a_test(grade: Grade) -> None:
    code = "import unittest\ndef f(x):\n    raise unittest.SkipTest('x')\n"
    test = (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
        "        self.assertEqual(f(1), 2)\n"
        "found = unittest.TestResult()\n"
        "unittest.defaultTestLoader.loadTestsFromTestCase(T).run(found)\n"
        "assert found.wasSuccessful()"
    )
    assert (await grade(code, test)).value == 0.0


async def test_lists_and_sets_of_an_answer_are_not_given_what_is_looked_for(grade: Grade) -> None:
    code = (
        "class L(list):\n    count = lambda self, o: 1\nclass S(set):\n    union = lambda s, o: o\n"
    )
    code += "    symmetric_difference = lambda self, o: set()\n"
    code += "def f():\n    return L()\ndef g():\n    return S()\n"
    tests = ("f().count(9) == 1", "g().union({9}) == {9} and g()", "not g() ^ {9}")
    for test in (*tests, "g().symmetric_difference({9}) == set()"):
        score = await grade(code, "assert " + test)
        assert score.value == 0.0, score.detail


async def test_an_object_of_the_set_up_keeps_the_methods_of_its_class(grade: Grade) -> None:
    setup = "class N:\n    def __init__(self, v):\n        self.v = v\n"
    setup += "    def same(self, o):\n        return self.v == o.v\n"
    setup += "    def __eq__(self, o):\n        return self.same(o)\n"
    code = "def f(x):\n    n = N(x)\n    n.same = {}\n    return n\n"
    for forged in ("lambda o: True", "bool"):
        score = await grade(code.format(forged), "assert f(3) == N(9)", setup=setup)
        assert score.value == 0.0, score.detail
    assert (
        await grade("def f(x):\n    return N(x * x)\n", "assert f(3) == N(9)", setup=setup)
    ).passed


async def test_a_replaced_function_is_not_that_of_the_program_that_grades(grade: Grade) -> None:
    code = "def f():\n    import builtins\n    builtins.print('x')\n    return 0\n"
    test = "from unittest.mock import patch\nwith patch('builtins.len', return_value=1):\n"
    assert not (await grade(code, test + "    assert f() == 1")).passed


async def test_nothing_that_the_answer_starts_outlives_the_grading(
    grade: Grade, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    daemon = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        open({str(pids)!r}, 'w').write(str(os.getpid()))\n        time.sleep(60)\n"
        "    os._exit(0)\n"
        f"while not os.path.exists({str(pids)!r}):\n    time.sleep(0.01)\n"
    )
    assert (await grade(daemon + RIGHT, *TESTS)).passed
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), signal.SIGKILL)


async def test_two_objects_of_the_answer_are_compared_by_the_answer(grade: Grade) -> None:
    """Not prevented: a test that compares the answer's objects with each other asks the answer."""
    easy = "class P:\n    def __init__(self, x):\n        pass\n    __eq__ = lambda *a: True\n"
    assert (await grade(easy, "assert P(1) == P(2)")).passed
    assert not (await grade(easy, "assert P(1).x == 1")).passed


async def test_an_expected_value_made_of_a_changed_argument_is_the_answers(grade: Grade) -> None:
    """Not prevented: as in one process, the answer may change what it is given."""
    easy = "def ordered(xs):\n    xs.clear()\n    return []\n"
    assert (await grade(easy, "xs = [2, 1]\nassert ordered(xs) == sorted(xs)")).passed
    assert not (await grade(easy, "xs = [2, 1]\nassert ordered(list(xs)) == sorted(xs)")).passed


async def test_without_isolation_tests_on_the_host_can_be_read(
    grade: Grade, tmp_path: Path
) -> None:
    """Not prevented without isolation of files: the data set, or the run's own tasks.jsonl."""
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(TESTS))
    assert (await grade(reading(str(file)), *TESTS)).passed


async def test_only_root_can_read_the_memory_of_the_tests(grade: Grade) -> None:
    """Not prevented without isolation: root of the host reads any memory, ours included."""
    score = await grade(MEMORY, *TESTS)
    assert score.passed is (os.geteuid() == 0), score.detail


async def test_a_sandbox_that_dies_under_the_tests_is_an_error_and_not_a_zero(
    sandbox: FolderSandbox, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(60)"
    trajectory = builders.trajectory(builders.turn(f"```python\n{code}\n```"))
    criterion = PythonTests(PythonTestsOptions(tests=TESTS))
    grading = asyncio.create_task(criterion.grade(builders.task(), trajectory, sandbox))
    await until(begun.exists)
    await sandbox.close()
    with pytest.raises(SandboxError):
        await grading
