"""The registry in NATS, with a server of the test's own."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ale.testing.waiting import wait_for
from ale_nats_client.options import ServerOptions
from ale_nats_client.testing import Server, make_certificates, running_server
from ale_servers.nats_registry import NatsRegistry
from ale_servers.records import Entry
from ale_servers.registry import own_entry, registered

LIMIT_S = 60.0


def at(url: str) -> ServerOptions:
    return ServerOptions(url=url)


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "nats") as made:
        yield made


@pytest.fixture
def connect(nats_server: Server) -> Iterator[Callable[..., NatsRegistry]]:
    made: list[NatsRegistry] = []

    def connected(expiry_s: float = 60.0) -> NatsRegistry:
        made.append(NatsRegistry(at(f"{nats_server.url}/test"), {}, expiry_s=expiry_s))
        return made[-1]

    yield connected
    for registry in made:
        registry.close()


Connect = Callable[..., NatsRegistry]


def names(registry: NatsRegistry) -> list[str]:
    return [entry.name for entry in registry.entries()]


def test_what_one_host_adds_and_removes_another_one_sees(connect: Connect) -> None:
    here, there = connect(), connect()
    assert names(there) == []
    for name in ("b/2", "a"):
        here.add(Entry(url=f"http://{name}", name=name))
    wait_for(lambda: names(there) == ["a", "b/2"])
    assert names(connect()) == ["a", "b/2"], "what was there before is listed at once"
    here.remove("a")
    here.remove("unknown")
    wait_for(lambda: names(there) == ["b/2"])


def test_a_server_does_not_renew_the_entry_of_another_with_its_name(connect: Connect) -> None:
    registry = connect()
    first, other = (Entry(url=f"http://{url}", name="a") for url in ("first", "other"))
    registry.renew(first)
    wait_for(lambda: registry.entries() == [first])
    registry.add(other)
    registry.renew(first)
    assert connect().entries() == [other]
    registry.remove("a")
    registry.renew(first)
    assert connect().entries() == [first], "it was removed and did not come back"


PROGRAM = """
import asyncio, sys
from ale_nats_client.options import ServerOptions
from ale_servers.nats_registry import NatsRegistry
from ale_servers.registry import own_entry, registered

async def main(url):
    registry = NatsRegistry(ServerOptions(url=url), {}, expiry_s=2)
    async with registered(registry, own_entry("http://x", "own"), 0.2):
        await asyncio.sleep(3600)

asyncio.run(main(sys.argv[1]))
"""


def test_the_entry_of_a_killed_server_expires(nats_server: Server, connect: Connect) -> None:
    url = f"{nats_server.url}/test"
    registry = connect(expiry_s=2)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, url]) as server:
        wait_for(lambda: names(registry) == ["own"])
        first = registry._seen["own"][1]
        wait_for(
            lambda: "own" in registry._seen and registry._seen["own"][1] > first
        )  # it is renewed
        server.kill()
        wait_for(lambda: names(registry) == [])
        assert names(connect(expiry_s=60)) == [], "NATS still has it"


async def test_a_server_is_there_while_it_runs(connect: Connect) -> None:
    registry = connect()
    async with registered(registry, own_entry("http://127.0.0.1:1/v1", "a/b"), beat_s=0.1):
        wait_for(lambda: names(registry) == ["a/b"])
    wait_for(lambda: names(registry) == [])


def test_what_was_there_stays_while_nats_is_away(nats_server: Server, connect: Connect) -> None:
    registry = connect(expiry_s=30)
    registry.add(Entry(url="http://a", name="a"))
    wait_for(lambda: names(registry) == ["a"])
    nats_server.stop()
    assert names(registry) == ["a"]
    nats_server.start()
    wait_for(lambda: registry._client is not None and registry._client.is_connected)
    registry.add(Entry(url="http://b", name="b"))
    wait_for(lambda: "b" in names(registry))


def test_what_had_expired_does_not_come_back_with_the_connection(
    nats_server: Server, connect: Connect
) -> None:
    registry = connect(expiry_s=30)
    registry.add(Entry(url="http://a", name="a"))
    wait_for(lambda: names(registry) == ["a"])
    dead = Entry(url="http://dead", name="dead")
    registry._seen["dead"] = (dead, time.monotonic() - 31)
    nats_server.stop()
    wait_for(lambda: registry._client is not None and not registry._client.is_connected)
    wait_for(lambda: names(registry) == ["a"])
    nats_server.start()
    wait_for(lambda: registry._client is not None and registry._client.is_connected)
    registry.add(Entry(url="http://b", name="b"))
    wait_for(lambda: "b" in names(registry))
    assert names(registry) == ["a", "b"]


def test_a_registry_that_can_not_be_reached_is_named() -> None:
    registry = NatsRegistry(at("nats://127.0.0.1:9"), {})
    with pytest.raises(ConnectionError, match=r"nats://127\.0\.0\.1:9/ale-servers can't be"):
        registry.entries()
    registry.close()
    with pytest.raises(ValueError, match="expected nats://HOST:PORT"):
        at("http://a")


def why_not(registry: NatsRegistry) -> str:
    with pytest.raises(ConnectionError) as caught:
        registry.entries()
    return str(caught.value)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Server]:
    """A NATS server that speaks TLS alone and asks for a user."""
    folder = tmp_path / "certificates"
    make_certificates(folder)
    options = ["--tls", "--tlscert", f"{folder}/server.pem", "--tlskey", f"{folder}/server.key"]
    made = Server(tmp_path / "nats", [*options, "--user", "run", "--pass", "secret"], scheme="tls")
    made.start()
    yield made
    made.stop()


def test_users_and_certificates_are_those_of_the_options(guarded: Server, tmp_path: Path) -> None:
    options = ServerOptions(
        url=f"{guarded.url}/test",
        tls_ca=tmp_path / "certificates" / "ca.pem",
        user_env="U",
        password_env="P",
    )
    here, there, other = (
        NatsRegistry(options, {"U": "run", "P": password})
        for password in ("secret", "secret", "guessed")
    )
    unchecked = NatsRegistry(ServerOptions(url=f"{guarded.url}/test"), {})
    here.add(Entry(url="http://a", name="a"))
    wait_for(lambda: names(there) == ["a"])
    # A server that refuses a client closes the connection, at times before its reason is read.
    wait_for(lambda: "refuses this client: " in why_not(other))
    with pytest.raises(ConnectionError, match=r"TLS failed: .*check tls_ca"):
        unchecked.entries()
    for registry in (here, there, other, unchecked):
        registry.close()
