"""What the commands do."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import aclosing

import click

from ale.errors import InputError
from ale.text import counted
from ale_nats.events import shown_events
from ale_nats.worker import WorkerOptions, worker_process
from ale_nats_client.options import ServerOptions

ISOLATION = ("network", "files", "processes")


def run_worker(
    server: ServerOptions,
    labels: str,
    slots: int | None,
    name: str | None,
    idle_s: float | None,
    require: str = "",
    readable: Sequence[str] = (),
) -> None:
    """``ale workers run``.

    Raises:
        InputError: `require` names something that no sandbox isolates.
        AleError: the server can't be reached.
    """
    required = _words(require)
    if unknown := required - {*ISOLATION}:
        message = f"unknown: {', '.join(sorted(unknown))}"
        raise InputError.of(message, path="--require", expected=", ".join(ISOLATION))
    options = WorkerOptions(
        labels=_words(labels),
        require=required,
        readable=frozenset(readable) or None,
        slots=slots or len(os.sched_getaffinity(0)),
        idle_s=idle_s,
        **({} if name is None else {"name": name}),
    )
    sys.exit(asyncio.run(_worker(server, options)))


def _words(text: str) -> frozenset[str]:
    return frozenset(filter(None, (word.strip() for word in text.split(","))))


async def _worker(server: ServerOptions, options: WorkerOptions) -> int:
    code = 0

    def end(number: signal.Signals) -> None:
        """The first Ctrl-C drains; anything else cancels."""
        nonlocal code
        first, code = code == 0, code or 128 + number
        if first and number == signal.SIGINT:
            _say("Finishing the running episodes; press Ctrl-C again to give them back.")
            process.drain()
        else:
            serving.cancel()

    async with worker_process(server, options, _say, os.environ) as process:
        _say(f"worker {options.name} at {server.url}: {options.slots} at once, waiting for jobs")
        serving = asyncio.create_task(process.serve())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            await serving
        except asyncio.CancelledError:
            _say("running episodes were given back to the queue")
        _say(counted(process.finished, "episode"))
        return code


def _say(text: str) -> None:
    click.echo(text, err=True)


def run_tail(
    server: ServerOptions, run: str | None, *, from_start: bool, as_json: bool, until_finished: bool
) -> None:
    """``ale workers events``. Raises `AleError` where the server can't be reached."""

    async def show() -> None:
        events = shown_events(server, os.environ, run, from_start=from_start)
        async with aclosing(events) as shown:
            async for event in shown:
                click.echo(event.json if as_json else event.line)
                if until_finished and event.hook == "ale_run_finished":
                    return

    asyncio.run(show())
