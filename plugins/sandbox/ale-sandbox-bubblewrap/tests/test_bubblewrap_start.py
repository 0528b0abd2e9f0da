# ruff: noqa: ASYNC110
"""What is ended before the supervisor has started it is killed when it starts."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ale.errors import PluginError, SandboxError
from ale.protocols import Sandbox
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap import facts
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox
from ale_sandboxing.process import process_tags

PATIENCE_S = 30.0


def process_of(box: BubblewrapSandbox, word: bytes) -> int:
    """The one whose command has the word."""
    (pid,) = (
        pid
        for pid in process_tags.find(box.record.tag)
        if word in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return pid


@asynccontextmanager
async def stopped_supervisor(box: BubblewrapSandbox) -> AsyncIterator[None]:
    """Start nothing meanwhile."""
    await box.exec("true")
    pid = process_of(box, b"fork_server")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def nothing_of(box: BubblewrapSandbox, command: int) -> None:
    """Wait until no process of a command is left, and check that the sandbox has survived it."""
    assert (await box.exec("echo alive")).stdout == b"alive\n"
    async with asyncio.timeout(PATIENCE_S):
        while process_tags.find(box.record.tag, command):
            await asyncio.sleep(0.01)


async def test_a_cancelled_start_of_the_fork_server_leaves_nothing(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    children = Path("/proc/thread-self/children")
    backend, before = make(), children.read_text()
    opening = asyncio.ensure_future(backend.open(SandboxSpec()).__aenter__())
    while not backend._starting.locked():
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    assert children.read_text() == before
    await backend.aclose()
    assert list(tmp_path.glob("ale-bubblewrap-*")) == []


async def test_a_cancelled_command(box: Sandbox) -> None:
    assert isinstance(box, BubblewrapSandbox)
    async with stopped_supervisor(box):
        command = asyncio.ensure_future(box.exec("sleep 600"))
        await asyncio.sleep(0.05)
        command.cancel()
        await asyncio.wait([command])
        assert command.cancelled()
    await nothing_of(box, 2)


async def test_a_command_whose_time_is_up(box: Sandbox) -> None:
    assert isinstance(box, BubblewrapSandbox)
    async with stopped_supervisor(box):
        command = asyncio.ensure_future(box.exec("sleep 600", timeout_s=0.05))
        await asyncio.sleep(0.2)
        assert not command.done()
    assert (await command).timed_out
    await nothing_of(box, 2)


async def test_a_closed_session(box: Sandbox) -> None:
    assert isinstance(box, BubblewrapSandbox)
    async with stopped_supervisor(box):
        session = await box.session()
        closing = asyncio.ensure_future(session.close())
        await asyncio.sleep(0.1)
        assert not closing.done()
    async with asyncio.timeout(PATIENCE_S):
        await closing
    await nothing_of(box, 2)


async def test_an_error_says_why_the_sandbox_has_ended(box: Sandbox) -> None:
    assert isinstance(box, BubblewrapSandbox)
    command = asyncio.ensure_future(box.exec("sleep 600"))
    await asyncio.sleep(0.2)
    os.kill(process_of(box, b"bwrap"), signal.SIGKILL)
    with pytest.raises(SandboxError, match="has ended: bubblewrap ended with a signal, 9"):
        await command


@pytest.mark.parametrize(
    "ends", ["import ale_sandbox_bubblewrap.no_such_module", "raise SystemExit(1)", "1 / 0"]
)
def test_an_error_of_the_feature_check_is_not_a_machine_that_can_do_nothing(
    monkeypatch: pytest.MonkeyPatch, ends: str, tmp_path: Path
) -> None:
    """Every test of this package would be left out, and look as if there were no bubblewrap."""
    checked = facts.python
    monkeypatch.setattr(facts, "python", lambda code: checked(f"{ends}; {code}"))
    with pytest.raises(PluginError, match="feature check of ale-sandbox-bubblewrap failed"):
        facts.find(tmp_path)


def test_a_feature_check_that_the_machine_kills_says_by_what(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checked = facts.python
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGSYS)"
    monkeypatch.setattr(facts, "python", lambda code: checked(f"{kill}; {code}"))
    assert facts.find(tmp_path).missing == "user namespaces: killed by SIGSYS"
