"""A fake service in a process of its own: its faults, its record of calls, and its address."""

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ENDS_S = 30.0


class FakeService:
    """The process of a fake service, seen from a test.

    Its program is called with a folder, and prints the port of the loopback address that it listens
    on. FOLDER/faults says what goes wrong, FOLDER/calls is what it was asked.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def go_wrong(self, **faults: Any) -> None:
        """Set what goes wrong from now on; without arguments, nothing."""
        new = self.folder / "faults.new"
        new.write_text(json.dumps(faults))
        new.rename(self.folder / "faults")

    def forget_calls(self) -> None:
        """Begin a new record."""
        (self.folder / "calls").write_text("")

    def calls(self, name: str) -> list[Mapping[str, Any]]:
        """What it was asked, in order."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call["call"] == name]


@contextlib.contextmanager
def running(program: Path, folder: Path, **faults: Any) -> Iterator[FakeService]:
    """Start a fake service."""
    with subprocess.Popen(
        [sys.executable, str(program), str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            service = FakeService(folder, f"http://127.0.0.1:{int(process.stdout.readline())}")
            service.go_wrong(**faults)
            yield service
        finally:
            process.terminate()
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()  # a connection that a test has left open kept it


class Faults:
    """What goes wrong, seen from the service's own process.

    ``share``: of calls whose answer is lost, but for those named in ``never``; ``quota``: of
    sandboxes; ``starts_in_s``; ``refuse``: the reason why none is created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = (folder / "calls").open("a")
        self.random = random.Random(7)  # noqa: S311

    def now(self) -> Mapping[str, Any]:
        """As the test has set them."""
        try:
            return dict(json.loads((self._folder / "faults").read_text()))
        except FileNotFoundError:
            return {}

    def record(self, name: str, **about: Any) -> None:
        """Write down what was asked."""
        self._calls.write(json.dumps({"call": name, **about}) + "\n")
        self._calls.flush()

    def loses(self, name: str) -> bool:
        """Shall the answer to this call be lost?"""
        faults = self.now()
        share: float = faults.get("share", 0)
        return name not in faults.get("never", ()) and self.random.random() < share


async def until_terminated() -> None:
    """Return at SIGTERM."""
    # Where it was started in the background, SIGINT is ignored, and no shell could change that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
