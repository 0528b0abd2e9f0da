"""Host processes that are killed at random moments, for tests of the cleaning up."""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

_HOST = """
import asyncio, importlib, json, os, random, sys
from pathlib import Path
from ale.plugin import BuildContext
from ale.types import SandboxSpec

async def episodes(backend, word):
    while True:
        async with backend.open(SandboxSpec()) as box:
            print(box.id, flush=True)
            await box.exec(f"(setsid sleep {word} &) ; echo data > file")
            session = await box.session()
            await session.run(f"sleep {word} &")
            twin = await box.fork()
            print(twin.id, flush=True)
            await twin.exec(f"(setsid sleep {word} &) ; mkdir -p a/b; chmod 000 a/b")
            if random.random() < 0.3:
                await twin.snapshot()
            await asyncio.sleep(random.random() * 0.2)
            await twin.close()

async def main():
    module, root, word, at_once = sys.argv[1:]
    plugin = importlib.import_module(module)
    options = plugin.ale_sandboxes()[0].options(root=Path(root))
    backend = plugin.build(options, BuildContext(environ=os.environ, tags={"run": "crashed"}))
    await asyncio.gather(*(episodes(backend, word) for _ in range(int(at_once))))

asyncio.run(main())
"""


@frozen(kw_only=True)
class KilledHost:
    """A host process that was killed."""

    word: str
    """In the command line of everything that it has left running."""
    opened: int
    """Sandboxes that it had opened, those by forks among them."""


def killed_hosts(
    module: str,
    root: Path,
    environ: Mapping[str, str],
    *,
    sandboxes: int,
    concurrency: int,
    longest_s: float,
) -> Iterator[KilledHost]:
    """Start host processes that open, use, fork and close sandboxes, and SIGKILL each.

    Args:
        module: ``plugin`` module of a sandbox; its options have a ``root``.
        environ: says where records go.
        sandboxes: how many are opened in all, at least.
        concurrency: in each process.
        longest_s: most seconds from the first sandbox of a process to its end.
    """
    left = sandboxes
    while left > 0:
        word = f"86400.{secrets.randbelow(10**9)}"
        process = subprocess.Popen(
            [sys.executable, "-c", _HOST, module, str(root), word, str(concurrency)],
            stdout=subprocess.PIPE,
            env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout as output:
            first = b""
            if random.random() < 0.1:  # noqa: S311 - while it starts
                time.sleep(random.random() * 0.5)  # noqa: S311
            else:
                first = output.readline()
                time.sleep(random.random() * longest_s)  # noqa: S311
            ended = process.poll()
            process.send_signal(signal.SIGKILL)
            opened = (first + output.read()).count(b"\n")
            process.wait()
        assert ended is None, f"the host process ended by itself, with {ended}"
        left -= opened
        yield KilledHost(word=word, opened=opened)


def mounted(text: str) -> list[str]:
    """Mounts whose line has `text` in it, in whatever mount namespace of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            lines = path.read_text().splitlines()
        except OSError:  # it has ended, or is not readable for us
            continue
        found += [f"{path}: {line}" for line in lines if text in line]
    return found
