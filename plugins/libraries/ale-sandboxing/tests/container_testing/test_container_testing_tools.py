"""The relay that stands for a slow connection, and what is said where no image can be made."""

import asyncio
import time
from pathlib import Path

import pytest

from ale_sandboxing.container_testing import images
from ale_sandboxing.container_testing.distance import Relay

DELAY_S = 0.05


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line.upper())
    writer.close()


async def test_a_relay_delays_each_way_counts_and_cuts(tmp_path: Path) -> None:
    relay = Relay(tmp_path / "engine", DELAY_S)
    server = await asyncio.start_unix_server(answer, tmp_path / "engine")
    async with relay.serve(tmp_path / "relay") as address:
        assert address == f"unix://{tmp_path}/relay"
        reader, writer = await asyncio.open_unix_connection(tmp_path / "relay")
        for sent in (1, 2):
            begun = time.monotonic()
            writer.write(b"word\n")
            assert await reader.readline() == b"WORD\n"
            assert time.monotonic() - begun >= 2 * DELAY_S
            assert relay.sent == sent
        relay.cut()
        assert await reader.read() == b""
        writer.close()
    server.close()


def test_a_missing_tool_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(images.shutil, "which", lambda *_, **__: None)
    with pytest.raises(images.CannotMakeError, match="apt-get install busybox-static"):
        images.provide(["false"], images.BUSYBOX)
