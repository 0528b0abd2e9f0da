"""A folder with problems like those of MBPP, a model behind HTTP, and ``ale art train``."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from ale.testing.openai_server import ScriptedServer, openai_server

FIRST = {"test": 11, "validation": 511, "train": 601}
"""The first id of each split of MBPP."""
PER_SPLIT = 4


def _problem(number: int) -> dict[str, Any]:
    """A problem in MBPP's form: a function that adds a number of its own."""
    tests = [f"assert f{number}({i}) == {number + i}" for i in range(3)]
    return {
        "task_id": number,
        "text": f"Write a function f{number} that adds {number} to its argument.",
        "code": f"def f{number}(x):\n    return x + {number}",
        "test_list": tests,
        "test_setup_code": "",
        "challenge_test_list": [],
    }


def _answer(number: int, *, right: bool) -> dict[str, Any]:
    """What the model says: code that adds the number, or one more."""
    code = f"def f{number}(x):\n    return x + {number if right else number + 1}"
    return {"text": f"```python\n{code}\n```"}


def _script(*, failing: int = 10, **more: Any) -> dict[str, Any]:
    """Even problems are solved at once, and odd ones after `failing` wrong answers.

    Args:
        more: entries of every step, such as ``delay_s``.
    """
    conversations = []
    for number in (first + i for first in FIRST.values() for i in range(PER_SPLIT)):
        wrong = [_answer(number, right=False)] * (failing if number % 2 else 0)
        steps = [{**step, **more} for step in (*wrong, _answer(number, right=True))]
        conversations.append({"match": rf"\bf{number}\b", "steps": steps})
    return {"conversations": conversations}


@frozen
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@frozen
class Desk:
    """Runs commands in a folder."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "TMPDIR": str(self.folder / "tmp"),
        }

    def start(
        self, *flags: str, data: Sequence[str] = ("--data", "mbpp.jsonl"), **environ: str
    ) -> subprocess.Popen[str]:
        """``ale art train`` with the local sandbox, these problems and flags."""
        (self.folder / "tmp").mkdir(exist_ok=True)
        ale = Path(sys.executable).with_name("ale")
        return subprocess.Popen(
            [ale, "art", "train", "--sandbox", "local", *data, *flags],
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def train(
        self, *flags: str, data: Sequence[str] = ("--data", "mbpp.jsonl"), **environ: str
    ) -> Done:
        process = self.start(*flags, data=data, **environ)
        out, err = process.communicate(timeout=120)
        return Done(process.returncode, out, err)

    @property
    def run(self) -> Path:
        """The folder of the only run."""
        (run,) = (self.folder / "runs").iterdir()
        return run

    @property
    def episodes(self) -> list[dict[str, Any]]:
        lines = (self.run / "episodes.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def credits(self) -> list[dict[str, Any]]:
        """The credited episodes of the first step."""
        lines = (self.run / "credits" / "00000.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def left_behind(self) -> list[Path]:
        """Files of sandboxes, and of the command itself."""
        return [path for path in (self.folder / "tmp").rglob("*") if path.is_file()]


def _ended(
    process: subprocess.Popen[str], *signals: signal.Signals, when: Callable[[], bool]
) -> Done:
    """Send signals: the first `when` it is time, the others when the one before was noticed."""
    assert process.stderr is not None
    deadline = time.monotonic() + 60
    while not when():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    err = ""
    for i, number in enumerate(signals):
        while i and "Finishing" not in err:
            err += process.stderr.readline()
        process.send_signal(number)
    out, rest = process.communicate(timeout=60)
    return Done(process.returncode, out, err + rest)


def _new_desk(folder: Path) -> Desk:
    """A folder with four problems in each split."""
    numbers = (first + i for first in FIRST.values() for i in range(PER_SPLIT))
    rows = "\n".join(json.dumps(_problem(number)) for number in sorted(numbers))
    (folder / "mbpp.jsonl").write_text(rows + "\n")
    return Desk(folder)


@pytest.fixture(scope="session")
def new_desk() -> Callable[[Path], Desk]:
    """For fixtures that last longer than a test."""
    return _new_desk


@pytest.fixture
def script() -> Callable[..., dict[str, Any]]:
    return _script


@pytest.fixture
def ended() -> Callable[..., Done]:
    return _ended


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return _new_desk(tmp_path)


Serve = Callable[[Mapping[str, Any]], ScriptedServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that plays a script; it ends with the test."""
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(openai_server(script))
