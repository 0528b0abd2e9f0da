"""A server as a subprocess: it has a log, is restarted after a crash, and ends with its parent.

Whatever ends the parent, even SIGKILL, closes the server's standard input, which ends the server,
too (`ale serve --end-with-stdin`).
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import frozen

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
"""Seconds between a crash and the next start, doubled after each crash up to the second."""
STEADY_S = 300.0
"""After running for this many seconds, which is longer than a start takes, a server begins again
with the shortest wait, and without failures."""
END_S = 15.0
"""Seconds between SIGTERM and SIGKILL."""
MISTAKE = 2
"""The exit status of a program that got wrong input: started again, it would end again."""


@frozen(kw_only=True)
class Command:
    """The command to run.

    Attributes:
        argv: program and arguments; it ends when its standard input is closed.
        log: its output is appended to this file.
        environ: replaces this process's environment.
    """

    argv: Sequence[str]
    log: Path
    environ: Mapping[str, str] | None = None


def serve_command(served: Sequence[str], register: Sequence[str], name: str) -> Sequence[str]:
    """An `ale serve` command on a free port of this machine, registered under this name.

    Args:
        served: what to serve, as arguments of `ale serve`.
        register: the options for the registry, such as ``--register FOLDER``.
    """
    place = ("--port", "0", *register, "--register-as", name)
    return (sys.executable, "-m", "ale", "serve", *served, *place, "--end-with-stdin")


@asynccontextmanager
async def supervised(
    command: Command,
    report: Callable[[str], None] = lambda message: None,
    on_start: Callable[[], None] = lambda: None,
    *,
    failures: int | None = None,
) -> AsyncIterator[asyncio.Task[None]]:
    """Keep the command running while the block runs, in a task that ends when it gives up.

    It gives up if the program ends with exit status 2, which means that its input was wrong.

    Args:
        report: gets a message for each unexpected end.
        on_start: called after each start.
        failures: give up, too, when the program has ended so many times in a row without running
            for `STEADY_S` once. None: never.

    Raises:
        OSError: the log can't be written.
    """
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log:
        running = asyncio.create_task(
            _run_always(command, log.fileno(), report, on_start, failures)
        )
        try:
            yield running
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def _run_always(
    command: Command,
    log: int,
    report: Callable[[str], None],
    on_start: Callable[[], None],
    failures: int | None,
) -> None:
    wait, in_a_row = FIRST_WAIT_S, 0
    while True:
        started = time.monotonic()
        process = await _started(command, log)
        try:
            on_start()
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        if status == MISTAKE:
            return report(f"the server ended with status {status}; it is not started again")
        if time.monotonic() - started > STEADY_S:
            wait, in_a_row = FIRST_WAIT_S, 0
        in_a_row += 1
        if in_a_row == failures:
            return report(
                f"the server ended with status {status}, {failures} times in a row; it is not "
                f"started again: see {command.log}"
            )
        report(f"the server ended with status {status}; started again in {wait:g} s")
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_S)


async def _started(command: Command, log: int) -> asyncio.subprocess.Process:
    new = asyncio.create_subprocess_exec(
        *command.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,  # a Ctrl-C goes to the parent, which then ends this
        env=None if command.environ is None else dict(command.environ),
    )
    starting = asyncio.ensure_future(new)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:  # in the middle of it, asyncio would leave its pipes open
        await _end(await starting)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def last_lines(log: Path, n: int = 8) -> str:
    """The end of a log, for a message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-n:])
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Does a process of this machine have this id?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
