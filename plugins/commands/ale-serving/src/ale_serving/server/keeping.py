"""``python -m ale_serving.server.keeping LOG COMMAND...``: keeps a server running until SIGTERM.

It ends with a server that ends by a mistake in what it was given.
"""

import asyncio
import signal
import sys
from pathlib import Path

from ale_servers.supervisor import Command, supervised


async def keep(command: Command) -> None:
    """Keep a server running."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)

    def report(message: str) -> None:
        print(message, flush=True)

    async with supervised(command, report) as running:
        stopping = asyncio.create_task(ended.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()


if __name__ == "__main__":
    log, *argv = sys.argv[1:]
    asyncio.run(keep(Command(argv=argv, log=Path(log))))
