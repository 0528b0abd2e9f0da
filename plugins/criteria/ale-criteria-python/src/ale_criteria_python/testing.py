"""Attacks on ``python_tests``, for tests of it in any sandbox.

Each is the code of an answer that gives wrong results and tries to pass all the same. `TESTS` ask
for a function ``square``; `SECRET` stands in them and nowhere else.
"""

SECRET = "squares-7c1e"  # noqa: S105 - a mark to look for
TESTS = (
    f"'{SECRET}'\nassert square(3) == 9",
    "assert abs(square(4) - 16) < 1e-9",
    "def check(candidate):\n    assert [candidate(x) for x in (5, 6)] == [25, 36]\ncheck(square)",
    "assert 24.9 < square(5) < 25.1",
    "assert set(square(x) for x in (7, 8)) == {49, 64}\nassert square(2) in [4]",
)
RIGHT = "def square(x):\n    return x * x\n"
_PARTS = repr(tuple(SECRET.split("-")))
"""Never put together in an answer that looks for it: it would find its own."""
WRONG = "\ndef square(x):\n    return x + 1\n"

_ANY = """
def true(*a, **k):
    return True
class Any({base}):
    __hash__ = object.__hash__
    def __getattr__(self, name):
        return self
    def __call__(self, *a, **k):
        return self
    def __abs__(self):
        return self
    def __iter__(self):
        return iter([self, self])
for name in 'eq ne lt le gt ge contains bool instancecheck'.split():
    setattr(Any, '__' + name + '__', true)
for name in 'add sub mul truediv radd rsub rmul'.split():
    setattr(Any, '__' + name + '__', lambda *a: {less})
def square(x):
    return Any()
"""

# Runs in the answer's process, and knows how it speaks with the tests.
_PEER = """
import sys
def peer():
    frame = sys._getframe()
    while 'candidate' not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals['candidate']
"""

_LOOK = """
import gc, sys
def has(text):
    one, other = {parts}
    return any(part.startswith(other) for part in text.split(one + '-')[1:])
def found():
    frame = sys._getframe()
    while frame:
        if has(repr((list(frame.f_locals), frame.f_code.co_consts))):
            return True
        frame = frame.f_back
    for each in gc.get_objects():
        for part in gc.get_referents(each):
            if type(part) in (str, bytes) and has(str(part)):
                return True
def square(x):
    return x * x if found() else 0
"""

_MEMORY = """
import os
def parents():
    pid = os.getpid()
    for _ in range(2):
        try:
            pid = int(open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[1])
        except OSError:
            return
        yield pid
def found():
    for pid in parents():
        try:
            for line in open('/proc/%d/maps' % pid):
                span, mode = line.split()[:2]
                start, end = (int(part, 16) for part in span.split('-'))
                if 'w' in mode and end - start < 1 << 27:
                    with open('/proc/%d/mem' % pid, 'rb', 0) as memory:
                        memory.seek(start)
                        if '-'.join({parts}).encode() in memory.read(end - start):
                            return True
        except (OSError, ValueError):
            continue
    return False
def square(x):
    return x * x if found() else 0
"""

# Writes to the two processes above its own, the spawner and the tests, as they were at its start,
# and to no others: without isolation every process of the user would be in reach.
_REPORT = """
import os, time
above = os.getppid()
over = int(open('/proc/%d/stat' % above).read().rpartition(')')[2].split()[1])
def report():
    text = b'ale-report ' + b'0' * 128 + b' ' + b'64310a73350a74657374736c300a\\n'
    for path in ['/proc/%d/fd/%d' % (pid, fd) for pid in (above, over) for fd in range(20)]:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(fd, text)
            os.close(fd)
        except OSError:
            pass
report()
"""

ATTACKS = {
    "exit at import": "import sys\nsys.exit(0)\n",
    "exit when called": "def square(x):\n    raise SystemExit(0)\n",
    "hard exit at import": "import os\nos._exit(0)\n",
    "hard exit when called": "import os\ndef square(x):\n    os._exit(0)\n",
    "hard exit at the end": "import atexit, os\natexit.register(os._exit, 0)\n" + WRONG,
    "exit from a thread": "import os, threading, time\n"
    "threading.Timer(0.01, os._exit, (0,)).start()\n"
    "def square(x):\n    time.sleep(0.5)\n",
    "end every iteration": "def square(x):\n    raise StopIteration\n",
    "replace builtins": "import builtins\n"
    "builtins.abs = builtins.set = builtins.AssertionError = lambda *a: True\n" + WRONG,
    "replace the failure": "import builtins\n"
    "builtins.AssertionError = type('Quiet', (SystemExit,), {})\n" + WRONG,
    "trace": "import sys\nsys.settrace(lambda *a: sys.exit(0))\n" + WRONG,
    "an object that equals everything": _ANY.format(base="", less="0"),
    "a number that equals everything": _ANY.format(base="int", less="0"),
    "a list that equals everything": _ANY.format(base="list", less="[]"),
    "a class that equals everything": "class M(type):\n"
    "    def __eq__(self, other):\n        return True\n"
    "    __hash__ = type.__hash__\n"
    "class square(metaclass=M):\n    def __init__(self, x):\n        pass\n",
    "not a number": "def square(x):\n    return float('nan')\n",
    "look for the tests in frames and objects": _LOOK.format(parts=_PARTS),
    "a forged report on the descriptors of the tests": _REPORT + WRONG,
    "bytes on every descriptor": "import os\n"
    "for fd in range(3, 300):\n"
    "    try:\n        os.write(fd, (10).to_bytes(8, 'big') + b't2\\ns6\\nresultT' * 9)\n"
    "    except OSError:\n        pass\n"
    "os._exit(0)\n",
    "results that were not asked for": _PEER + "def square(x):\n"
    "    send = peer().channel.send\n"
    "    for _ in range(9):\n        send(b't2\\ns6\\nresultT')\n    return True\n",
    "references to what the tests hold": _PEER + "def square(x):\n"
    "    peer().channel.send(b't2\\ns6\\nresult@0\\n')\n    return 0\n",
    "functions of the tests that there are not": _PEER + "def square(x):\n"
    "    return peer().exchange('call', -1)\n",
    "names of functions instead of classes": _PEER + "def square(x):\n"
    "    for name in (b'exec', b'os.system', b'answer.square'):\n"
    "        peer().channel.send(b't2\\ns6\\nresulty%s\\n' % name)\n",
    "an object that says it is a class": _PEER + "class Any:\n"
    "    __eq__ = __lt__ = __gt__ = lambda *a: True\n    __bases__ = (int,)\n"
    "def square(x):\n    own = peer()\n    own.objects.append(Any())\n"
    "    number = len(own.objects) - 1\n"
    "    own.channel.send(b't2\\ns6\\nresulth%d type\\n' % number)\n",
    "a coroutine that equals everything": "class Any:\n    __eq__ = lambda *a: True\n"
    "async def square(x):\n    return Any()\n",
    "claims about other objects": _PEER + "import operator\n"
    "def square(x):\n    return Own()\nclass Own:\n    pass\n"
    "def answer(self, request, kept=[]):\n"
    "    message = b't2\\ns6\\nresultT' if request[0] != 'names' else None\n"
    "    self.channel.send(message) if message else kept[0](self, request)\n"
    "kind = type(peer())\nanswer.__defaults__[0].append(kind.answer)\nkind.answer = answer\n",
    "a number that is another each time": _PEER + "from itertools import cycle\n"
    "class Number(int):\n    def __init__(self, x):\n"
    "        self.values = cycle([10 ** 9, -10 ** 9])\n"
    "def square(x):\n"
    "    operations = type(peer()).answer.__globals__['OPERATIONS']\n"
    "    operations['plain'] = lambda value: next(value.values)\n    return Number(0)\n",
    "kill the parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n" + WRONG,
    "kill the process of the tests": "import os, signal\n"
    "above = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
    "os.kill(above, signal.SIGKILL)\n" + WRONG,
    "a late writer": _REPORT + "if os.fork() == 0:\n    os.setsid()\n"
    "    if os.fork():\n        os._exit(0)\n"
    "    for _ in range(500):\n        time.sleep(0.01)\n        report()\n" + WRONG,
    "a value that is too long": "def square(x):\n    return 'x' * (80 << 20)\n",
    "a value without an end": "def square(x):\n    found = []\n    found.append(found)\n"
    "    return found\n",
}
"""These fail in every sandbox."""

MEMORY = _MEMORY.format(parts=_PARTS)
"""Reads the tests in memory. Fails but for root with CAP_SYS_PTRACE: in ``local``, as root."""


STOP = (
    "import os, signal\n"
    "above = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
    "os.kill(above, signal.SIGSTOP)\n" + WRONG
)
"""Stops the process of the tests, so that the grading takes all its time. Fails everywhere."""

_HOOK = """
import builtins
def exec(code, *scopes, old=builtins.exec):
    if not getattr(code, 'co_filename', '').startswith('<test'):
        old(code, *scopes)
builtins.exec = exec
"""
ROOT = (
    "import encodings, os\n"
    "if os.path.exists('/.dockerenv') or os.path.exists('/run/.containerenv'):\n"
    "    try:\n"
    "        with open(encodings.__file__, 'a') as file:\n"
    f"            file.write({_HOOK!r})\n"
    "    except OSError:\n        pass\n" + WRONG
)
"""As root of a container, has each later Python pass all tests without running them.

Fails where it is graded in a sandbox of its own. Does nothing outside a container.
"""


def reading(path: str) -> str:
    """An answer that reads the tests in a file of the host. Passes where it can: in ``local``."""
    return (
        "def square(x):\n"
        f"    try:\n        text = open({path!r}).read()\n"
        "    except OSError:\n        text = ''\n"
        f"    return x * x if '-'.join({_PARTS}) in text else 0\n"
    )
