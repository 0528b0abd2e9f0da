"""A launch from its start to its end, with signals."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from ale.protocols import Launch, Launched, Launcher
from ale_launch.following import Follower


def to_the_end(launcher: Launcher, launch: Launch, say: Callable[[str], None]) -> int:
    """Start everything, show the run's log, pass signals to the run; its exit status."""
    return asyncio.run(_to_the_end(launcher, launch, say))


async def _to_the_end(launcher: Launcher, launch: Launch, say: Callable[[str], None]) -> int:
    follower = Follower(launch.log(launch.run.name), _show)
    launched = await launcher.start(launch, say)
    passing = _Passing(launched)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, passing.on_signal, number)
    following = asyncio.create_task(follower.follow())
    try:
        return await launched.wait()
    finally:
        await launched.end()
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        follower.show_new()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


class _Passing:
    """Passes signals on, each at its time."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._tasks: set[asyncio.Task[None]] = set()

    def on_signal(self, number: signal.Signals) -> None:
        """A signal for the launcher is one for the run."""
        task = asyncio.create_task(self._launched.send_signal(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
