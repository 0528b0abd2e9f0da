"""Runs tests in the sandbox and reports which passed; the code under test can't forge the report.

Three kinds of process, because the code under test is hostile:

- the signer (this program) holds the key with which the verdict is signed. It runs no test.
- the runner, forked before the key was read, lays out the tests, forks a child per test, reads
  the child's messages and kills what it leaves behind. It imports nothing but the standard library.
- a child imports the code under test and runs a unit of tests (`child.py`). It is believed only
  when it answers the runner's challenge, which it does after the test has returned.

Sent as text to ``python3 -I -S -B``; stdin carries the plan, the last argument is the folder to
make and to work in. Standard library only, Python 3.8.
"""

# pathlib would add to every start.
# ruff: noqa: PTH101, PTH102, PTH103, PTH108, PTH112, PTH114, PTH118, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import base64
import builtins
import hashlib
import hmac
import importlib
import importlib.machinery
import json
import os
import resource
import select
import shutil
import signal
import site  # noqa: F401
import socket
import sys
import time
import traceback  # noqa: F401
from typing import Any, Dict, Iterable, Iterator, NoReturn  # noqa: UP035

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
NO_PYTEST, FAILED = 0xFFFFFFFF, 0x80000000
TAIL_BYTES = 3000
CHALLENGE_BYTES = 16
POLL_S = 0.05
LOOK_S = 0.5
LINK = 0o120000
DECOY_S = 5.0
Plan = Dict[str, Any]  # noqa: UP006


def control(option: int, value: int) -> None:
    """prctl, where there is one: keep our memory and descriptors from others of the same user."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return  # not Linux, or a Python without ctypes: the rest does not depend on it


def read_all(fd: int) -> bytes:
    """Everything until the end of a descriptor."""
    parts: list[bytes] = []
    while True:
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def send_signed(key: bytes, kind: str, body: Plan) -> None:
    """One signed line to the host."""
    text = json.dumps(body, separators=(",", ":"))
    mark = hmac.new(key, f"{kind} {text}".encode(), hashlib.sha256).hexdigest()
    sys.stdout.write(f"{kind} {mark} {text}\n")
    sys.stdout.flush()


def signer() -> None:
    """Fork the runner, then read the key; pass the plan on, sign what comes back."""
    control(PR_SET_DUMPABLE, 0)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        runner(theirs)
    theirs.close()
    plan = json.loads(read_all(0))
    plan["folder"] = sys.argv[-1]
    key = bytes.fromhex(plan.pop("key"))
    send_signed(key, "started", {})
    ours.settimeout(plan["wait_s"] + 5)
    lines: list[Plan] = []
    try:
        saved = save_workspace(plan)
    except OSError as error:
        saved, plan["units"] = [], []
        lines.append({"error": f"{type(error).__name__}: {error}"})
    try:
        with ours.makefile("rwb") as stream:
            stream.write(json.dumps(plan).encode() + b"\n")
            stream.flush()
            lines.extend(received(stream))
    except OSError:
        pass  # the runner was stopped or killed: the missing lines show it
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    put_back(saved)
    shutil.rmtree(saved_folder(plan), ignore_errors=True)
    shutil.rmtree(plan["folder"], ignore_errors=True)
    send_signed(key, "report", {"lines": lines, "left": os.path.lexists(plan["folder"])})


def received(stream: Iterable[bytes]) -> Iterator[Plan]:
    """The runner's lines, up to one that it does not write: somebody else does in its place."""
    for line in stream:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(found, dict) or not all(map(is_flat, found.values())):
            return
        yield found


def is_flat(value: object) -> bool:
    """Whether a field of a line is a scalar, or a list of such."""
    inside = value if isinstance(value, list) else [value]
    return not any(isinstance(one, (list, dict)) for one in inside)


def runner(link: socket.socket) -> NoReturn:
    """Run every test of the plan that comes over the link; never returns."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    control(PR_SET_CHILD_SUBREAPER, 1)
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    with link.makefile("rwb") as stream:

        def send(**fields: object) -> None:
            stream.write(json.dumps(fields).encode() + b"\n")
            stream.flush()

        plan = json.loads(stream.readline())
        deadline = time.monotonic() + plan["wait_s"]
        try:
            os.mkdir(plan["folder"], 0o700)
            modules = compiled(plan)
            restore_workspace(plan)
        except (OSError, SyntaxError, ValueError) as error:
            send(error=f"{type(error).__name__}: {error}")
            os._exit(1)
        passed = []
        for number, unit in enumerate(plan["units"]):
            outcome = ChildRun(plan, unit, modules).run(deadline)
            if unit.get("decoy", True):
                passed += [(number, test, outcome["seconds"]) for test in outcome["passed"]]
            send(unit=number, **outcome)
        if passed:
            chosen = int.from_bytes(os.urandom(4), "big") % len(passed)
            send(forged=decoy_claims_pass(plan, modules, *passed[chosen]))
        send(done=True)
    os._exit(0)


def decoy_claims_pass(plan: Plan, modules: Plan, number: int, test: int, seconds: float) -> bool:
    """Run a passed test again, in a child that does not report when the test returns.

    A report in that run is forged. It has a time limit of its own: none of the rest may be left.
    """
    unit = dict(plan["units"][number], tests=[plan["units"][number]["tests"][test]])
    allowed = min(max(DECOY_S, 2 * seconds), plan["wait_s"])
    child = ChildRun(plan, unit, modules, decoy=True)
    return bool(child.run(time.monotonic() + allowed)["passed"]) or child.forged


def compiled(plan: Plan) -> Plan:
    """Code of the tests and their helpers, from memory; the standard library that they use."""
    for name in plan["standard"]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # the test that needs it fails and says so
    modules: Plan = {"": [compile(text, "<ale grading>", "exec") for text in plan["child"]]}
    for name, (path, is_package) in plan["modules"].items():
        file = os.path.join(plan["folder"], "tests", path)
        source = base64.b64decode(plan["files"][path][1])
        modules[name] = (compile(source, file, "exec", dont_inherit=True), file, is_package)
    return modules


def write_test_files(plan: Plan) -> None:
    """The tests' files and an empty home, fresh for every child."""
    tests, home = (os.path.join(plan["folder"], name) for name in ("tests", "home"))
    shutil.rmtree(tests, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(home, exist_ok=True)
    for path, (mode, data) in plan["files"].items():
        file = os.path.join(tests, path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as out:
            out.write(base64.b64decode(data))
        os.chmod(file, mode)


def restore_workspace(plan: Plan) -> None:
    """Write the files of the workspace that belong to the tests, and remove what stands for them.

    ``plan["workspace"]`` has `files`, by path in the workspace; `absent`, paths at which nothing
    may be; and `names`: files of these names are removed unless their path is in `known`.
    """
    work = plan.get("workspace")
    if not work:
        return
    for path, (mode, data) in work["files"].items():
        replace_file(plan["workdir"], path, mode, base64.b64decode(data))
    for path in work["absent"]:
        remove(first_touched(plan["workdir"], path))
    for path in unknown(plan):
        remove(path)


def unknown(plan: Plan) -> list[str]:
    """Files and folders of the workspace with a name that only known ones may have."""
    work, found = plan["workspace"], []
    for folder, folders, names in os.walk(plan["workdir"]):
        for name in set(names + folders).intersection(work["names"]):
            path = os.path.join(folder, name)
            if os.path.relpath(path, plan["workdir"]) not in work["known"]:
                found.append(path)
        folders[:] = [name for name in folders if name not in (".git", *work["names"])]
    return found


def first_touched(root: str, path: str) -> str:
    """What a write to a path replaces or makes: itself, or the first on the way that is no folder.

    A link to a folder is none: what it leads to is not touched.
    """
    reached = root
    for part in path.split("/"):
        reached = os.path.join(reached, part)
        if os.path.islink(reached) or not os.path.isdir(reached):
            break
    return reached


def saved_folder(plan: Plan) -> str:
    """Where the files of the workspace are that were moved away."""
    return str(plan["folder"]) + "-saved"


def save_workspace(plan: Plan) -> list[tuple[str, str]]:
    """Copy what `restore_workspace` will replace: the path of each, and that of its copy."""
    work = plan.get("workspace")
    if not work:
        return []
    paths = [first_touched(plan["workdir"], path) for path in (*work["files"], *work["absent"])]
    folder = saved_folder(plan)
    os.mkdir(folder, 0o700)
    saved = []
    for number, path in enumerate(dict.fromkeys([*paths, *unknown(plan)])):
        copy = os.path.join(folder, str(number))
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.copytree(path, copy, symlinks=True)
        elif os.path.lexists(path):
            shutil.copy2(path, copy, follow_symlinks=False)
        saved.append((path, copy))
    return saved


def put_back(saved: list[tuple[str, str]]) -> None:
    """Leave the workspace as the agent left it, as far as the tests have left that possible."""
    for path, copy in saved:
        try:
            remove(path)
            if os.path.lexists(copy):
                shutil.move(copy, path)
        except OSError:
            continue  # a folder on the way is gone: nothing of the agent's is lost by it


def replace_file(root: str, path: str, mode: int, data: bytes) -> None:
    """A regular file, or a link, below a root; links and files in the place of folders give way."""
    parent = root
    for part in path.split("/")[:-1]:
        parent = os.path.join(parent, part)
        if os.path.islink(parent) or not os.path.isdir(parent):
            remove(parent)
            os.mkdir(parent)
    target = os.path.join(root, path)
    remove(target)
    if mode == LINK:
        os.symlink(data, os.fsencode(target))
        return
    with open(target, "xb") as out:
        out.write(data)
    os.chmod(target, 0o755 if mode & 0o100 else 0o644)


def remove(path: str) -> None:
    """Remove a file, a link or a folder; it may be absent."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


class ChildRun:
    """One child, from its fork to the end of all that it started."""

    def __init__(self, plan: Plan, unit: Plan, modules: Plan, decoy: bool = False) -> None:
        self.plan, self.unit, self.modules, self.decoy = plan, unit, modules, decoy
        self.passed: set[int] = set()
        self.failed: set[int] = set()
        self.error: str | None = None
        self.forged = False
        self.tail = b""
        self.received = b""
        self.challenge: bytes | None = None
        self.index = -1
        self.looked = 0.0

    def run(self, deadline: float) -> Plan:
        """What the child passed, by position in the unit, and the end of what it printed."""
        write_test_files(self.plan)
        restore_workspace(self.plan)
        started = self.looked = time.monotonic()
        link, theirs = socket.socketpair()
        out, end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.exec_child(theirs, end)
        theirs.close()
        os.close(end)
        status = self.wait(pid, link, out, deadline)
        link.close()
        os.close(out)
        reap()
        return {
            "passed": sorted(self.passed),
            "failed": sorted(self.failed - self.passed),
            "status": status,
            "seconds": time.monotonic() - started,
            "error": self.error,
            "forged": self.forged,
            "output": self.tail.decode("utf-8", "replace"),
        }

    def exec_child(self, link: socket.socket, end: int) -> NoReturn:
        """Only the link stays open."""
        os.setsid()
        os.dup2(end, 1)
        os.dup2(end, 2)
        save_output = link.detach()
        os.closerange(3, save_output)
        os.closerange(save_output + 1, 256)
        control(PR_SET_DUMPABLE, 1)
        control(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A copy of the builtins: changes by the code under test do not reach ours.
        scope: Plan = {"__builtins__": dict(vars(builtins)), "__name__": "ale_grading"}
        for code in self.modules[""]:
            exec(code, scope)  # noqa: S102
        scope["main"](self.plan, self.unit, self.modules, save_output, self.decoy)
        os._exit(1)

    def wait(self, pid: int, link: socket.socket, out: int, deadline: float) -> int | None:
        """Wait for the child's end; its status, or None when it had to be killed."""
        link.setblocking(False)
        os.set_blocking(out, False)
        listening = {
            link.fileno(): lambda: self.on_readable(link),
            out: lambda: self.save_output(out),
        }
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            # Once more after the end: output may still be in the pipe.
            for fd in select.select(list(listening), [], [], 0 if done else POLL_S)[0]:
                if not listening[fd]():
                    del listening[fd]
            if done:
                while out in listening and self.save_output(out):
                    pass
                kill_group(pid)
                return status
            is_exposed = self.forged or (self.decoy and self.passed)
            if is_exposed or self.is_late(deadline):
                kill_group(pid)
                os.waitpid(pid, 0)
                return None
            if not listening:
                time.sleep(0.001)

    def is_late(self, deadline: float) -> bool:
        """Is the time for all tests used up, by the clock or by the processor?"""
        now = time.monotonic()
        if now > deadline or self.decoy or now - self.looked < LOOK_S:
            return now > deadline
        self.looked = now
        return bool(cpu_seconds() >= self.plan["timeout_s"])

    def save_output(self, out: int) -> bool:
        """Some output; False at its end."""
        try:
            data = os.read(out, 1 << 16)
        except BlockingIOError:
            return False
        self.tail = (self.tail + data)[-self.plan.get("tail_bytes", TAIL_BYTES) :]
        return bool(data)

    def on_readable(self, link: socket.socket) -> bool:
        """Read from the child. False to stop reading.

        A claim is the index of a test in 4 bytes; all ones says that pytest is missing. A claim is
        answered with a challenge, and the child answers that with the same bytes. With the highest
        bit set it says that the test failed, and is believed as it is.
        """
        try:
            data = link.recv(64)
            self.received += data
            return bool(data) and self.parse_claims(link)
        except (BlockingIOError, ConnectionError):
            return False

    def parse_claims(self, link: socket.socket) -> bool:
        """Interpret all that was received, as `on_readable`."""
        while True:
            before = len(self.received)
            if not self.parse_claim(link):
                return False
            if len(self.received) in (0, before):
                return True

    def parse_claim(self, link: socket.socket) -> bool:
        """Interpret what was received, as `on_readable`. An invalid message is a forgery."""
        if self.challenge is None and len(self.received) >= 4:
            self.index, self.received = int.from_bytes(self.received[:4], "big"), self.received[4:]
            if self.index == NO_PYTEST:
                self.error = "pytest"
                return False
            if self.index & FAILED:
                self.failed.add(self.index ^ FAILED)
                return True
            self.forged = self.index >= len(self.unit["tests"]) or self.index in self.passed
            self.challenge = os.urandom(CHALLENGE_BYTES)
            link.send(self.challenge)
        elif self.challenge is not None and len(self.received) >= CHALLENGE_BYTES:
            # What comes after the answer is the next claim.
            answer, self.received = self.received[:CHALLENGE_BYTES], self.received[CHALLENGE_BYTES:]
            self.forged = answer != self.challenge
            self.passed.add(self.index)
            self.challenge = None
        if self.forged:
            self.passed.clear()
            link.shutdown(socket.SHUT_RDWR)
        return not self.forged


def kill_group(pid: int) -> None:
    """Kill a child's process group; it may be gone."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def reap() -> None:
    """Kill what a child left running: orphans are reparented to us. A loop, as they may fork."""
    for _ in range(1000):
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in children():
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(0.001)


def children() -> list[int]:
    """Process ids of our children, from /proc."""
    return [pid for pid, (parent, _) in processes().items() if parent == os.getpid()]


def cpu_seconds() -> float:
    """CPU time of all that was started below this process, whether it has ended or still runs."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found, below = processes(), [os.getpid()]
    for pid in below:
        below += [each for each, (parent, _) in found.items() if parent == pid]
    running = sum(found[pid][1] for pid in below[1:])
    return ended.ru_utime + ended.ru_stime + running


def processes() -> dict[int, tuple[int, float]]:
    """Parent and CPU time of each process: its own, and of children that it has waited for."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
            found[int(name)] = (int(words[1]), sum(map(int, words[11:15])) / ticks)
        except (OSError, ValueError, IndexError):
            continue
    return found


if __name__ == "ale_grading":
    signer()
