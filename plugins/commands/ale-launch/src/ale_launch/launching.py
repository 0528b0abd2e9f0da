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
    passing = _Passing()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, passing.on_signal, number)
    try:
        launched = await launcher.start(launch, say)
        passing.pass_to(launched)
        return await _followed(launched, follower)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _followed(launched: Launched, follower: Follower) -> int:
    following = asyncio.create_task(follower.follow())
    try:
        return await launched.wait()
    finally:
        await launched.end()
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        follower.show_new()


class _Passing:
    """Passes signals on, each at its time; those before the start has ended, after it."""

    def __init__(self) -> None:
        self._launched: Launched | None = None
        self._early: list[signal.Signals] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def pass_to(self, launched: Launched) -> None:
        """From now on, and what came before."""
        self._launched = launched
        for number in self._early:
            self.on_signal(number)

    def on_signal(self, number: signal.Signals) -> None:
        """A signal for the launcher is one for the run."""
        if self._launched is None:
            self._early.append(number)
            return
        task = asyncio.create_task(self._launched.send_signal(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _show(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
