"""The process in which the tests run, and which reports. It never runs code of the answer.

It keeps its memory and descriptors from others of the same user, forks the spawner, and only then
reads the tests and the key of the report: neither the spawner nor the answer ever had them.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ale_criteria_python.inside.wire import Plan, Shared

if __name__ != "ale_grading":
    from ale_criteria_python.inside.around import NotSupportedError, Surroundings
    from ale_criteria_python.inside.carried import (
        Scope,
        carry_abstract_classes,
        carry_dataclasses,
    )
    from ale_criteria_python.inside.channel import (
        PR_SET_CHILD_SUBREAPER,
        PR_SET_DUMPABLE,
        Closed,
        control,
        read_exactly,
        silence,
    )
    from ale_criteria_python.inside.remote import (
        Ended,
        Kind,
        Peer,
    )
    from ale_criteria_python.inside.spawner import Spawner, cpu_seconds, end_children
    from ale_criteria_python.inside.wire import pack, unpack

SHOWN = 200
"""Characters of a value in a message."""
AGAIN_S = 5.0
LOOK_S = 0.1
"""Between two looks at the time that was used."""


class LatePackages:
    """Finds installed packages, which ``-S`` left out, when the first of them is imported."""

    ready = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As `importlib.abc.MetaPathFinder`."""
        if self.ready or path is not None:
            return None
        self.ready = True
        import site
        from importlib.machinery import PathFinder

        site.main()
        return PathFinder.find_spec(name, path, target)


class Allowed:
    """A limit of CPU time, and of the clock for what waits or is kept waiting."""

    def __init__(self, seconds: float, wait_s: float, used: float = 0.0) -> None:
        self.seconds, self.wait_s, self.before = seconds, wait_s, used
        self.begun = time.monotonic()

    def late(self, used: float) -> str:
        """Which limit is reached, in words; empty if none is."""
        if used - self.before >= self.seconds:
            return f"{self.seconds:g} s of CPU time"
        return f"{self.wait_s:g} s" if time.monotonic() - self.begun >= self.wait_s else ""


class Tests:
    """Runs the tests one by one, against one process of the answer while it lives."""

    def __init__(self, plan: Plan, tests: Plan, spawner: Spawner) -> None:
        self.plan, self.spawner = plan, spawner
        self.tests, self.names, self.modules = tests["tests"], tests["names"], tests["modules"]
        self.replaced, self.combines = tests["replaced"], tests["combines"]
        self.classes, self.spelled = set(tests["classes"]), set(tests["spelled"])
        self.left = Allowed(plan["total_timeout_s"], plan["total_wait_s"])
        self.test = self.left
        self.late = ""
        self.timed_out = False
        self.broken: str | None = None
        """Why no test can pass: the answer can't be loaded."""
        self.peer: Peer | None = None
        self.by_process: dict[int, float] = {}
        self.base: Plan = {}
        self.shared: Shared = {}

    def prepare(self) -> None:
        """Run the set-up here as well: what it defines is trusted."""
        if any("dataclasses" in text for text in (self.plan["setup"], *self.tests)):
            carry_dataclasses()
        if any("isinstance" in text or "IsInstance" in text for text in self.tests):
            carry_abstract_classes()
        module = type(sys)("answer")
        sys.modules["answer"] = module
        exec(compile(self.plan["setup"], "<set-up>", "exec", dont_inherit=True), vars(module))  # noqa: S102
        self.base = {"type": Kind, **{name: __import__(name) for name in self.modules}}
        self.base.update(vars(module))
        self.shared = {
            name: value
            for name, value in self.base.items()
            if isinstance(value, type) and value.__module__ == "answer"
        }
        self.surroundings = Surroundings(self.replaced, watched(self.tests))
        _signal.signal(_signal.SIGALRM, self.on_alarm)

    def on_alarm(self, number: int, frame: object) -> None:
        """Look whether the test is out of time."""
        self.late = self.test.late(self.used()) or self.left.late(self.used())
        if self.late:
            # Again only where this was caught, and not while it is handled.
            _signal.setitimer(_signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
            raise Ended("not done in time")

    def used(self) -> float:
        """CPU seconds of this process and of all processes of the answer until now."""
        current = cpu_seconds(self.spawner.answer) if self.spawner.answer else 0.0
        self.by_process[self.spawner.answer] = max(
            current, self.by_process.get(self.spawner.answer, 0.0)
        )
        return time.process_time() + sum(self.by_process.values())

    def run(self) -> list[str | None]:
        """The error of each test; None if it passed."""
        return [self.run_one(number, test) for number, test in enumerate(self.tests, 1)]

    def run_one(self, number: int, test: str) -> str | None:
        """One test; what went wrong, or None. Raises `NotSupportedError`."""
        if self.broken is None and (late := self.left.late(self.used())):
            self.broken = f"the time for all tests was used up: {late}"
            self.timed_out = True
        if self.broken is not None:
            return self.broken
        self.late = ""
        self.test = Allowed(self.plan["timeout_s"], self.plan["wait_s"], self.used())
        # CPU time is no faster than the clock, but for threads.
        first = max(min(self.test.seconds, self.left.seconds) / 2, LOOK_S)
        _signal.setitimer(_signal.ITIMER_REAL, first, LOOK_S)
        try:
            error = self.attempt(f"<test {number}>", test)
        except Ended as ended:
            error = str(ended)
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
        if self.late or (self.peer is not None and self.peer.ended):
            self.peer = None
            self.timed_out = self.timed_out or bool(self.late)
            error = f"not done in {self.late}" if self.late else error or "the answer ended"
        return error

    def attempt(self, name: str, test: str) -> str | None:
        """Run a test; what went wrong, or None."""
        if self.peer is None:
            self.start()
        if self.broken is not None or self.peer is None:
            return self.broken
        self.peer.test = test
        scope = Scope(self.base, self.peer, self.names)
        try:
            exec(compile(test, name, "exec", dont_inherit=True), scope)  # noqa: S102
        except (Ended, NotSupportedError):
            raise
        except BaseException as error:
            return described(error, name, test) + self.peer.last_call(shortened)
        return None

    def start(self) -> None:
        """A fresh process with the answer loaded; or `broken` is set."""
        try:
            peer = Peer(self.spawner.start(), self.shared, self.surroundings)
            self.surroundings.begin()
            peer.combines, peer.classes = self.combines, self.classes
            peer.spelled = self.spelled
            problem = peer.read()[1]
        except Closed:
            problem = "it ended its own process, or the one that starts it"
        except Exception as error:
            problem = f"it sent what can't be read: {error!r}"
        if problem is not None:
            self.broken = f"the answer can't be loaded: {problem}"
        else:
            self.peer = peer


def watched(tests: list[str]) -> set[str]:
    """Parts of their process that tests may set, and the answer is to have too."""
    words = {"environ": "environment", "putenv": "environment", "chdir": "folder"}
    words.update(warnings="warnings", assertWarns="warnings", logging="logs", Logs="logs")
    return {found for word, found in words.items() if any(word in test for test in tests)}


def described(error: BaseException, name: str, test: str) -> str:
    """An exception, and the line of the test that raised it."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    text = type(error).__name__ + (f": {error}" if str(error) else "")
    lines = test.split("\n")
    if 0 < line <= len(lines):
        text += f" in `{shortened(lines[line - 1].strip())}`"
    return text


def shortened(text: str) -> str:
    """Not more of a text than a message shows."""
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def limit_memory(megabytes: int) -> None:
    """For this process and all that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = megabytes << 20
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))


def remove(folder: str) -> None:
    """Delete a folder, as far as that is possible."""
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files + folders:
            path = os.path.join(root, name)  # noqa: PTH118
            try:
                (os.rmdir if name in folders and not os.path.islink(path) else os.unlink)(path)  # noqa: PTH114
            except OSError:
                continue
    os.rmdir(folder)  # noqa: PTH106


def grade(folder: str) -> tuple[int, bytes]:
    """Read the answer, fork the spawner, read the tests, run them.

    Returns:
        The descriptor to report to, and the report.
    """
    if not (control(PR_SET_DUMPABLE, 0) and control(PR_SET_CHILD_SUBREAPER, 1)):
        sys.exit("prctl can't be called: the tests could be read (is this a Python with ctypes?)")
    plan = unpack(part())
    os.mkdir(folder, 0o700)  # noqa: PTH102
    limit_memory(plan["memory_mb"])
    sys.meta_path.append(LatePackages())
    spawner = Spawner(plan, folder)
    os.write(1, b"ale-started\n")
    tests = unpack(part())
    out = os.dup(1)
    silence()
    run = Tests(plan, tests, spawner)
    report: Plan = {}
    try:
        run.prepare()
    except Exception as error:
        report["unsupported"] = f"{type(error).__name__}: {error}"
    else:
        try:
            report["tests"] = run.run()
            report["timed_out"] = run.timed_out
        except NotSupportedError as error:
            report["unsupported"] = str(error)
    end_children()
    try:
        remove(folder)
    except OSError:
        report["left"] = True
    return out, signed(report, tests["key"])


def part() -> bytes:
    """A part of the input: its length in 8 bytes, then so much."""
    size = int.from_bytes(read_exactly(lambda n: os.read(0, n), 8), "big")
    return read_exactly(lambda n: os.read(0, n), size)


def signed(report: Plan, key: bytes) -> bytes:
    """A line that only who knows the key can write."""
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b
    text = pack(report)
    return b"ale-report %s %s\n" % (
        blake2b(text, key=key).hexdigest().encode(),
        text.hex().encode(),
    )


def main() -> None:
    """Grade, and write the report."""
    out, data = grade(sys.argv[-1])
    while data:
        data = data[os.write(out, data) :]
    os._exit(0)


if __name__ == "ale_grading":
    main()
