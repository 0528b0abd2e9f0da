"""Requests to a run, without the run; tests/e2e/test_steer.py has real ones."""

import asyncio
import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ale
from ale._run import control
from ale._run.control import NAMED, listening, requested
from ale.errors import InputError, StoreError

PATIENCE_S = 60.0


def refused(message: str) -> None:
    pytest.fail(message)


def carried_out(action: str, number: int | str | None) -> Mapping[str, Any]:
    return {"action": action, "number": number}


def connected(folder: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect((folder / NAMED).read_text())
    made.setblocking(False)
    return made


async def answer(folder: Path) -> bytes:
    """The answer to a request; empty if it was not heard."""
    loop = asyncio.get_running_loop()
    with connected(folder) as made, contextlib.suppress(ConnectionError):
        await loop.sock_sendall(made, b'{"action": "pause"}\n')
        return await asyncio.wait_for(loop.sock_recv(made, 4096), PATIENCE_S)
    return b""


async def test_a_client_that_says_nothing_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_PATIENCE_S", 3600.0)
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, it: complaints.append(it))
    async with asyncio.timeout(PATIENCE_S):
        async with listening(tmp_path, carried_out, refused):
            silent = connected(tmp_path)
            assert await answer(tmp_path)  # the silent one is being listened to by now
    silent.close()
    assert not complaints


async def test_so_many_clients_are_heard_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_CLIENTS", 3)
    monkeypatch.setattr(control, "_PATIENCE_S", 3600.0)
    async with listening(tmp_path, carried_out, refused):
        silent = [connected(tmp_path) for _ in range(3)]
        assert await answer(tmp_path) == b"", "it is closed at once"
        silent.pop().close()
        async with asyncio.timeout(PATIENCE_S):
            while not await answer(tmp_path):  # until the closing was noticed
                pass
    for each in silent:
        each.close()


async def test_what_a_killed_process_left_is_removed_and_what_runs_is_not(tmp_path: Path) -> None:
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    killed.mkdir()
    copy.mkdir()
    left = tmp_path / "ale-control-1"
    left.mkdir()
    # Paths of sockets are short. It is closed without a word.
    with contextlib.chdir(left), socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    (killed / NAMED).write_text(str(left / "socket"))
    async with listening(killed, carried_out, refused):
        assert not left.exists()
        (copy / NAMED).write_bytes((killed / NAMED).read_bytes())
        async with listening(copy, carried_out, refused):
            assert (copy / NAMED).read_bytes() != (killed / NAMED).read_bytes()
        assert b"pause" in await answer(killed)
        socket_of_it = Path((killed / NAMED).read_text())
    assert not socket_of_it.parent.exists()
    assert not (killed / NAMED).exists()


def left_behind(folder: Path, *, age_s: float = 3600.0) -> Path:
    """The folder of a socket whose process was killed so long ago."""
    folder.mkdir()
    with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    then = time.time() - age_s
    os.utime(folder, (then, then))
    return folder


async def test_what_killed_runs_left_among_the_temporary_files_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, one, two = (tmp_path / name for name in ("temporary", "one", "two"))
    for each in (temporary, one, two):
        each.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    async with listening(one, carried_out, refused):  # a run that runs, for long
        running = Path((one / NAMED).read_text()).parent
        os.utime(running, (0.0, 0.0))
        dead = left_behind(temporary / "ale-control-dead")
        young = left_behind(temporary / "ale-control-young", age_s=1.0)
        others = left_behind(temporary / "ale-control-others")
        (others / "notes").write_text("precious")
        os.utime(others, (0.0, 0.0))
        elsewhere = left_behind(tmp_path / "elsewhere")
        (temporary / "ale-control-link").symlink_to(elsewhere)
        os.utime(temporary / "ale-control-link", (0.0, 0.0), follow_symlinks=False)
        async with listening(two, carried_out, refused):
            assert not dead.exists()
        assert b"pause" in await answer(one)
    assert [(each / "socket").is_socket() for each in (young, others, elsewhere)] == [True] * 3


async def test_what_another_user_has_left_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = left_behind(tmp_path / "ale-control-left")
    user = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: user + 1)
        control._sweep()
    assert (left / "socket").is_socket()
    control._sweep()
    assert not left.exists()


@pytest.mark.parametrize("name", ["kept", "socket"])
async def test_a_file_that_names_another_folder_removes_nothing_there(
    tmp_path: Path, name: str
) -> None:
    other = tmp_path / "ale-control-of-somebody"
    other.mkdir()
    (other / name).write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / NAMED).write_text(f"{other}/{name}")
    async with listening(run, carried_out, refused):
        pass
    assert (other / name).read_text() == "precious"


async def test_a_path_that_can_not_be_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / NAMED).write_bytes(b"/tmp/a\0b/socket")
    async with listening(tmp_path, carried_out, refused):
        assert (tmp_path / NAMED).read_text().endswith("/socket")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[]", 'a mapping with an "action"'),
        (b"{", "a line of JSON"),
        (b'{"action": "paus"}', "did you mean 'pause'?"),
        (b'{"action": "concurrency", "to": true}', "a number of at least 1"),
        (b'{"action": "pause", "to": 3}', "pause needs nothing else, found 3"),
        (b'{"action": "cancel", "to": 3}', "the id of an episode"),
    ],
)
def test_a_request_that_is_none_is_refused(line: bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        requested(line)
    assert said in str(caught.value)


async def test_a_run_is_named_by_a_path_or_its_text(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a socket that has the lock has just begun, or is about to end."""
    run = await workplace.ran(workplace.config())
    for folder in (run.store.path, str(run.store.path)):
        with pytest.raises(InputError, match="the run is not running: it is completed"):
            ale.steer(folder)
    monkeypatch.setattr(control, "holder", lambda _: "1")
    with pytest.raises(StoreError, match="takes no request now: it has just begun, or is about"):
        ale.steer(str(run.store.path))
