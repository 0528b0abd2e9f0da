"""An engine that is killed in the middle of commands, and started again."""

import asyncio
import gc
import secrets
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from ale.testing.sandbox.probes import host_processes
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandboxing.container_testing.elsewhere import OwnEngine
from ale_sandboxing.container_testing.ends import start_host
from ale_sandboxing.container_testing.images import BUSYBOX
from ale_sandboxing.container_testing.tools import PATIENCE_S, built, error_of, left_of


@pytest.mark.filterwarnings("ignore:unclosed <.*ocket:ResourceWarning")
class RestartProbes:
    """Needs two fixtures: ``plugin``, and ``own``: an engine that has the image `BUSYBOX`, and no
    other tests at the same time."""

    @pytest.fixture(autouse=True)
    def no_sockets(self) -> Iterator[None]:
        """The SDK forgets to close those that it could not connect."""
        yield
        gc.collect()

    async def test_commands_of_a_killed_engine_break_and_new_sandboxes_open(
        self, plugin: ModuleType, own: OwnEngine
    ) -> None:
        backend = built(plugin, host=own.address, image=BUSYBOX)
        word = f"86400.{secrets.randbelow(10**9)}"
        lost = backend.open(SandboxSpec())
        first = await lost.__aenter__()
        async with backend.open(SandboxSpec()) as second:
            session = await second.session()
            running = [
                asyncio.ensure_future(first.exec(f"sleep {word}")),
                asyncio.ensure_future(session.run(f"sleep {word}")),
            ]
            await until(lambda: len(host_processes(word)) >= 2, "the commands' start")
            await asyncio.to_thread(own.kill)
            for work in running:
                assert "can't be reached" in await error_of(work)
            assert "does not answer" in await error_of(lost.__aexit__(None, None, None))
            await asyncio.to_thread(own.start)
            async with backend.open(SandboxSpec()) as fresh:
                assert (await fresh.exec("echo new")).stdout == b"new\n"
                # What has been lost stays lost, for the reason that it was lost for.
                assert "can't be reached" in await error_of(second.exec("true"))
        await backend.aclose()
        assert left_of(backend._engine) == []
        await until(lambda: not host_processes(word), "the processes' end")

    async def test_what_a_run_leaves_that_a_killed_engine_has_broken_is_pruned(
        self, plugin: ModuleType, own: OwnEngine
    ) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        options = {"image": BUSYBOX, "host": own.address}
        host: tuple[str, dict[str, Any]] = (plugin.__name__, {"options": options, "tags": {}})
        run, (ids,) = await asyncio.to_thread(start_host, host, [word])
        await asyncio.to_thread(own.kill)
        assert await asyncio.to_thread(run.wait, PATIENCE_S) != 0
        assert run.stdout is not None
        run.stdout.close()
        await asyncio.to_thread(own.start)
        backend = built(plugin, host=own.address, image=BUSYBOX)
        assert {info.id for info in await backend.prune()} >= set(ids)
        assert left_of(backend._engine) == []
        await until(lambda: not host_processes(word), "the processes' end")
        await backend.aclose()
