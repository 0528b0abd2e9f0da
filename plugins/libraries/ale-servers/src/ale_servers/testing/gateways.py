# ruff: noqa: D102 - a name says what a test does
"""Shared by the tests of gateways to other server programs; each has a fake of its program."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ale.errors import LLMError
from ale_servers.gateway import Gateway
from ale_servers.hosted import HostedLLM
from ale_servers.protocol import InferenceServer
from ale_servers.testing.contract import ServerContract, ask, check_exact
from ale_servers.testing.serving import serving_app
from ale_servers.testing.tables import TableLab, write_model


class GatewayLab(TableLab):
    """A fake of a server program, and the folder of its model."""

    def __init__(self, folder: Path, fake: Any) -> None:
        super().__init__(folder)
        self.fake = fake
        self.model = folder / "model"
        write_model(self.model)


@asynccontextmanager
async def hosted(made: HostedLLM, fake: Any) -> AsyncIterator[HostedLLM]:
    """The component with the fake, in this process, as its program."""

    @asynccontextmanager
    async def run(on_start: Any) -> AsyncIterator[None]:
        fake.__init__()
        on_start()
        yield

    async with serving_app(fake.app) as url:
        made.asked.url = url
        made.server._run = run
        yield made
        await made.aclose()


class OfGateway:
    """A gateway's fixtures for a contract; as a base class, put it before the contract's class."""

    @pytest.fixture
    def lab(self, tmp_path: Path, fake: Any) -> GatewayLab:
        return GatewayLab(tmp_path, fake)

    @pytest.fixture
    def bare(self, llm: HostedLLM) -> InferenceServer:
        return llm.server


class GatewayContract(OfGateway, ServerContract):
    """The tests of any server, and of the program behind this one."""

    updates: str
    """The route that fails if the program can't take weights."""

    async def test_a_program_that_fails_an_update_is_started_again(
        self, llm: HostedLLM, lab: GatewayLab
    ) -> None:
        gateway: Gateway = llm.server
        before = await gateway.status()
        lab.fake.refuses = self.updates
        with pytest.raises(LLMError, match="was started again"):
            await gateway.update(lab.publish(1))
        await gateway.started()
        after = await gateway.status()
        assert after.instance != before.instance
        assert (after.version, after.digest, after.paused) == (0, before.digest, False)
        request = ask(lab, 4)
        check_exact(lab, request, await gateway.sample(request))
