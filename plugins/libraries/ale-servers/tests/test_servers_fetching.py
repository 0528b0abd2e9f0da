"""Weights for servers that can't read the trainer's folder."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from ale.errors import AleError, LLMError
from ale_servers.address import Address
from ale_servers.channel import WeightFolder, files_of
from ale_servers.client import Connections, HTTPServer
from ale_servers.fetching import FetchedWeights
from ale_servers.origin import WeightOrigin
from ale_servers.protocol import InferenceServer, WeightsError
from ale_servers.records import Entry, Weights
from ale_servers.testing.adapters import AdapterContract, AdapterLab
from ale_servers.testing.bigram import BigramLab, BigramServer
from ale_servers.testing.contract import ServerContract, ServerLab
from ale_servers.testing.serving import serving


def moved(weights: Weights) -> Weights:
    """The same weights, in a folder that this machine does not have."""
    return msgspec.structs.replace(weights, folder=f"/elsewhere/{Path(weights.folder).name}")


class Elsewhere(HTTPServer):
    """A client whose folders the server can't read."""

    def __init__(self, url: str, connections: Connections, lab: "Lab") -> None:
        super().__init__(Entry(url=url), connections)
        self._lab = lab

    async def prepare(self, weights: Weights) -> None:
        await super().prepare(await self._handed_out(weights))

    async def update(self, weights: Weights) -> None:
        await super().update(await self._handed_out(weights))

    async def _handed_out(self, weights: Weights) -> Weights:
        origin = await self._lab.origin(weights.adapter).started()
        return msgspec.structs.replace(moved(weights), origin=origin)


class Lab(BigramLab):
    """Hands out what it publishes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.origins: dict[str, WeightOrigin] = {}

    def origin(self, adapter: str) -> WeightOrigin:
        if adapter not in self.origins:
            self.origins[adapter] = WeightOrigin(self._folder / adapter, Address("auto"))
        return self.origins[adapter]


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path / "weights")
    yield lab
    for each in lab.origins.values():
        await each.aclose()


@pytest_asyncio.fixture
async def bare(lab: Lab) -> AsyncIterator[InferenceServer]:
    connections = Connections()
    async with serving(BigramServer(token_s=0.001)) as url:
        yield Elsewhere(url, connections, lab)
        await connections.aclose()


class TestFetched(ServerContract):
    @pytest.fixture
    def lab(self, lab: Lab) -> ServerLab:
        return lab

    @pytest.fixture
    def bare(self, bare: InferenceServer) -> InferenceServer:
        return bare


class TestFetchedAdapters(AdapterContract):
    @pytest.fixture
    def lab(self, lab: Lab) -> AdapterLab:
        return lab

    @pytest.fixture
    def bare(self, bare: InferenceServer) -> InferenceServer:
        return bare


class Place:
    """A trainer's folder, handed out, and the copies of a server."""

    def __init__(self, folder: Path, address: str) -> None:
        self.channel = WeightFolder(folder)
        self.origin = WeightOrigin(folder, Address.read(address))
        self.fetched = FetchedWeights()

    async def publish(self, version: int, size: int = 3_000_000, n_files: int = 2) -> Weights:
        def write(folder: Path) -> str:
            for number in range(n_files):
                content = bytes([version + number]) * (size + number)
                (folder / f"{number}.safetensors").write_bytes(content)
            return f"digest {version}"

        made = moved(self.channel.publish(version, write))
        return msgspec.structs.replace(made, origin=await self.origin.started())

    async def local(self, weights: Weights) -> Weights:
        return await self.fetched.local(weights, "127.0.0.1")


@pytest_asyncio.fixture
async def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Place]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = Place(tmp_path / "weights", getattr(request, "param", "auto"))
    yield place
    await place.fetched.aclose()
    await place.origin.aclose()


def copies(folder: Path) -> list[Path]:
    return sorted(folder.glob("ale-weights-*"))


@pytest.mark.parametrize("place", ["auto", "127.0.0.1", "localhost:0", "[::1]:0"], indirect=True)
async def test_the_copy_has_the_same_bytes_until_it_is_closed(place: Place, tmp_path: Path) -> None:
    given = await place.publish(3)
    copy = await place.local(given)
    assert (copy.version, copy.digest, copy.origin) == (3, "digest 3", None)
    files = {file.name: file.read_bytes() for file in files_of(copy)}
    assert files == {
        "0.safetensors": b"\3" * 3_000_000,
        "1.safetensors": b"\4" * 3_000_001,
    }
    assert len(copies(tmp_path)) == 1
    await place.fetched.aclose()
    assert copies(tmp_path) == []


async def test_a_version_is_fetched_once_and_two_are_kept(place: Place) -> None:
    kept = []
    for version in range(4):
        given = await place.publish(version)
        first, second = await asyncio.gather(place.local(given), place.local(given))
        assert first == second
        files = files_of(first)
        assert await place.local(given) == first
        assert [each.stat().st_ino for each in files_of(first)] == [
            each.stat().st_ino for each in files
        ]
        kept.append(Path(first.folder))
    assert [each.exists() for each in kept] == [False, False, True, True]


async def test_a_folder_that_can_be_read_is_not_copied(place: Place, tmp_path: Path) -> None:
    given = await place.publish(1)
    here = msgspec.structs.replace(given, folder=str(place.channel.root / "v00000001"))
    assert await place.local(here) == msgspec.structs.replace(here, origin=None)
    assert copies(tmp_path) == []


async def test_only_who_has_the_key_gets_the_weights(place: Place) -> None:
    given = await place.publish(1)
    assert given.origin is not None
    for key in ("", "wrong", "../weights"):
        other = msgspec.structs.replace(given.origin, key=key)
        with pytest.raises(WeightsError, match=r"does not hand out v00000001/weights\.json"):
            await place.local(msgspec.structs.replace(given, origin=other))


async def test_other_weights_of_this_name_are_refused(place: Place) -> None:
    given = await place.publish(1)
    with pytest.raises(WeightsError, match="hands out version 1 with digest digest 1; expected"):
        await place.local(msgspec.structs.replace(given, digest="another"))


async def test_files_with_another_size_than_published_are_refused(place: Place) -> None:
    given = await place.publish(1)
    with (place.channel.root / "v00000001" / "1.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(WeightsError, match="are not whole"):
        await place.local(given)


@pytest.mark.parametrize("name", ["../up.safetensors", "/abs.safetensors", "weights.json", ".."])
async def test_a_file_with_a_path_for_a_name_is_refused(place: Place, name: str) -> None:
    given = await place.publish(1)
    marker = place.channel.root / "v00000001" / "weights.json"
    content = msgspec.json.decode(marker.read_bytes())
    marker.write_bytes(msgspec.json.encode({**content, "files": {name: 1}}))
    with pytest.raises(WeightsError, match="hands out a file with the name"):
        await place.local(given)


async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers the marker, and a tenth of the file."""
    asked = await reader.readuntil(b"\r\n\r\n")
    if b"weights.json" in asked:
        body = b'{"version": 1, "digest": "d", "files": {"a.safetensors": 100}}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    else:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 10)
    await writer.drain()
    writer.close()


async def test_a_transfer_that_breaks_off_is_not_taken_for_wrong_weights(tmp_path: Path) -> None:
    place = Place(tmp_path / "weights", "auto")
    given = await place.publish(1)
    assert given.origin is not None
    await place.origin.aclose()
    with pytest.raises(LLMError, match=r"can't be fetched from 127\.0\.0\.1.*refused") as caught:
        await place.local(given)
    assert caught.value.transient
    async with await asyncio.start_server(cut, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        origin = msgspec.structs.replace(given.origin, port=port)
        half = msgspec.structs.replace(given, digest="d", origin=origin)
        with pytest.raises(LLMError, match="ended 90 bytes too early") as caught:
            await place.local(half)
    assert caught.value.transient
    await place.fetched.aclose()


async def test_closing_ends_a_transfer_that_stands_still(place: Place) -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    given = await place.publish(1)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        origin = msgspec.structs.replace(given.origin, port=port)
        transfer = asyncio.create_task(place.local(msgspec.structs.replace(given, origin=origin)))
        await asked.wait()
        async with asyncio.timeout(10):
            await place.fetched.aclose()
            with pytest.raises(LLMError, match="can't be fetched"):
                await transfer


async def test_a_full_disk_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    given = await place.publish(1)
    monkeypatch.setattr(place.fetched, "_get", full)
    with pytest.raises(LLMError, match=r"copied here: .*No space left on device"):
        await place.local(given)


def test_the_copies_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    script = (
        "import time; from pathlib import Path; from ale_servers.own_folder import own_folder; "
    )
    script += f"print(own_folder(Path({str(tmp_path)!r}))[0], flush=True); time.sleep(60)"

    def begun() -> tuple[Any, Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    processes = []
    try:
        for _ in range(2):
            processes.append(begun())
        (first, killed), (_, living) = processes
        first.kill()
        first.wait()
        assert killed.is_dir()
        processes.append(begun())
        assert not killed.exists()
        assert living.is_dir()
        assert processes[2][1].is_dir()
    finally:
        for process, _ in processes:
            process.kill()
            process.communicate()


async def test_an_address_that_is_taken_or_elsewhere_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for text, reason in (
            (f"127.0.0.1:{port}", f"at 127.0.0.1:{port}: Address already in use"),
            ("192.0.2.1:0", "at 192.0.2.1:0: Cannot assign"),
            ("no.such.host.invalid", "at no.such.host.invalid:0: "),
        ):
            with pytest.raises(AleError, match=f"weights can't be handed out {reason}"):
                await WeightOrigin(tmp_path / "weights", Address.read(text)).started()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("auto", "auto", 0),
        ("auto:8000", "auto", 8000),
        ("10.0.0.5", "10.0.0.5", 0),
        ("node-1:90", "node-1", 90),
        ("::1", "::1", 0),
        ("[::1]", "::1", 0),
        ("[fe80::2]:7", "fe80::2", 7),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert Address.read(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", ":80", "a:", "a:x", "a:70000", "http://a:80"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST, HOST:PORT, auto or auto:PORT, found"):
        Address.read(text)
