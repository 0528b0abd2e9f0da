"""What a sandbox reaches while its network changes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from ale.errors import SandboxError, UnsupportedError
from ale.testing.sandbox.probes import descriptors
from ale.types import EgressLedger, SandboxSpec
from ale_sandboxing.container import worker
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.egress import LIMITS
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.tools import Make, opened, out

_GET = """
import socket, sys, urllib.request
url = sys.argv[1]
if "//gateway:" in url:
    routes = [line.split() for line in open("/proc/net/route").readlines()[1:]]
    (found,) = [route[2] for route in routes if route[1] == "00000000"]
    url = url.replace("gateway", socket.inet_ntoa(bytes.fromhex(found)[::-1]))
print(urllib.request.urlopen(url, timeout=3).read().decode(), end="")
"""
_SAY = """
import socket, sys, time
proxy = socket.create_connection(("127.0.0.1", 3128), 10)
for line in sys.argv[1:]:
    proxy.sendall(line.encode() + b"\\r\\n\\r\\n")
    said = proxy.recv(1 << 16)
while piece := proxy.recv(1 << 16):
    said += piece
print(said.decode())
"""
_IDLE = """\
import socket, time
held = []
for _ in range(1024):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", 3128))
    held.append(one)
time.sleep(60)
"""
_PROXY = {"http_proxy": "http://127.0.0.1:3128", "no_proxy": ""}
_NONE = {"http_proxy": "", "no_proxy": "*"}


@contextlib.asynccontextmanager
async def served(backend: ContainerBackend, text: str) -> AsyncIterator[str]:
    """A server in a container of its own; its address."""
    async with backend.open(SandboxSpec(network=True)) as sandbox:
        await sandbox.write("/srv/file", text.encode())
        server = "(python3 -m http.server 8080 -d /srv >/dev/null 2>&1 &)"
        look = "until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8080))'"
        await out(sandbox, f"{server}; {look} 2>/dev/null; do sleep 0.1; done")
        host = await out(sandbox, "hostname -i")
        assert await fetched(sandbox, host) == text, "it does not reach itself"
        yield host


@contextlib.asynccontextmanager
async def on_the_host(text: str) -> AsyncIterator[int]:
    """A server on this machine, which containers reach by their gateway; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.0 200 OK\r\n\r\n{text}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def fetched(
    sandbox: ContainerSandbox,
    host: str,
    env: Mapping[str, str] = MappingProxyType(_NONE),
    port: int = 8080,
) -> str | None:
    """A file from a server; None if it is not reachable. ``gateway`` is the sandbox's own."""
    line = ["python3", "-c", _GET, f"http://{host}:{port}/file"]
    result = await sandbox.exec(line, timeout_s=20, env=env)
    return result.stdout.decode() if result.exit_code == 0 else None


async def answered(sandbox: ContainerSandbox, *requests: str) -> str:
    """The proxy's answer to request heads."""
    result = await sandbox.exec(["python3", "-c", _SAY, *requests], timeout_s=20)
    return result.stdout.decode().strip()


async def first_process(sandbox: ContainerSandbox) -> int:
    """Number of its first process, as the engine knows it."""
    backend, name = sandbox._backend, f"ale-{sandbox.id}"
    assert isinstance(backend, ContainerBackend)
    return (await backend._threads.call(lambda: backend._engine.state(name))).pid


class NetworkProbes:
    """Needs one more fixture, ``image``: one with python3."""

    @pytest.fixture
    def new_network(self) -> None:
        """Sandboxes get a network that this test makes; an engine on which they share one that is
        there already replaces this."""

    async def test_only_listed_hosts_are_reached_through_the_proxy(self, make: Make) -> None:
        backend = make()
        async with served(backend, "listed") as listed, served(backend, "other") as other:
            spec = SandboxSpec(network=False, allowed_hosts=(listed,))
            async with backend.open(spec) as sandbox:
                assert await out(sandbox, "ls /sys/class/net") == "lo"
                assert await fetched(sandbox, listed, env=_PROXY) == "listed"
                assert await fetched(sandbox, other, env=_PROXY) is None
                assert await fetched(sandbox, listed) is None, "reached without the proxy"
                tunnel = f"CONNECT {listed}:8080 HTTP/1.1"
                said = await answered(sandbox, tunnel, "GET /file HTTP/1.0")
                assert said.endswith("listed")
                said = await answered(sandbox, tunnel.replace(listed, other))
                assert said.startswith("HTTP/1.1 403")
                await self._changes(sandbox, listed, other)
        await backend.aclose()

    async def test_what_passed_through_the_proxy_is_written_down(self, make: Make) -> None:
        backend = make()
        async with served(backend, "listed") as listed:
            spec = SandboxSpec(network=False, allowed_hosts=(listed,))
            async with backend.open(spec) as sandbox:
                assert sandbox.egress() == EgressLedger(), "nothing has left it yet"
                assert await fetched(sandbox, listed, env=_PROXY) == "listed"
                assert await fetched(sandbox, "evil.example", env=_PROXY) is None
                kept = sandbox.egress()
                passed, refused = kept.rows
                assert (passed.host, passed.port, passed.address) == (listed, 8080, listed)
                assert (passed.outcome, passed.connections) == ("passed", 1)
                assert passed.sent > len("GET /file HTTP/1.1")
                assert passed.received > len("listed")
                assert (refused.host, refused.outcome) == ("evil.example", "refused")
                assert kept.unrecorded == ""
                await sandbox.set_network(False, ("other.example",))
                assert sandbox.egress().rows[0] == passed, "another list begins another ledger"
        await backend.aclose()

    async def test_a_whole_network_is_said_to_be_unrecorded(self, make: Make) -> None:
        backend = make()
        async with backend.open(SandboxSpec(network=True)) as sandbox:
            assert "had the whole network" in sandbox.egress().unrecorded
            await sandbox.set_network(False)
            assert "had the whole network" in sandbox.egress().unrecorded, "it had it before"
        async with backend.open(SandboxSpec(network=False)) as sandbox:
            assert sandbox.egress() == EgressLedger()
        await backend.aclose()

    async def _changes(self, sandbox: ContainerSandbox, listed: str, other: str) -> None:
        await sandbox.set_network(False, (other,))
        assert await fetched(sandbox, other, env=_PROXY) == "other"
        assert await fetched(sandbox, listed, env=_PROXY) is None
        await sandbox.set_network(False)
        assert await fetched(sandbox, other, env=_PROXY) is None

    async def test_an_allow_list_that_could_not_be_served_is_served_when_it_is_set_again(
        self, make: Make
    ) -> None:
        backend = make()
        engine: Any = backend._engine

        def silent(container: str) -> NoReturn:
            raise SandboxError("it does not answer")

        async with (
            served(backend, "listed") as listed,
            backend.open(SandboxSpec(network=False)) as sandbox,
        ):
            state, engine.state = engine.state, silent
            with pytest.raises(SandboxError, match="does not answer"):
                await sandbox.set_network(False, (listed,))
            engine.state = state
            await sandbox.set_network(False, (listed,))
            assert await fetched(sandbox, listed, env=_PROXY) == "listed"
        await backend.aclose()

    async def test_no_name_reaches_this_machines_loopback(self, make: Make) -> None:
        async with opened(make(), network=False, allowed_hosts=("localhost", "127.0.0.0/8")) as box:
            for host in ("localhost", "127.0.0.1"):
                said = await answered(box, f"GET http://{host}:8080/ HTTP/1.1")
                assert "its address is this machine's own" in said

    async def test_a_thousand_idle_connections_to_the_proxy_harm_no_other_sandbox(
        self, make: Make
    ) -> None:
        backend = make()
        async with served(backend, "there") as host:
            spec = SandboxSpec(network=False, allowed_hosts=(host,))
            async with backend.open(spec) as attacker, backend.open(spec) as other:
                before = descriptors()
                await out(attacker, f"python3 -c '{_IDLE}' >/dev/null & sleep 2")
                taken = descriptors() - before
                assert len(taken) <= LIMITS.connections + 16, f"{len(taken)} descriptors"
                assert await fetched(other, host, env=_PROXY) == "there"
                await attacker.end_processes()
                assert await fetched(attacker, host, env=_PROXY) == "there"
        await backend.aclose()

    async def test_a_network_is_disconnected_and_connected_again(self, make: Make) -> None:
        async with on_the_host("there") as port, opened(make(), network=True) as sandbox:
            assert await fetched(sandbox, "gateway", port=port) == "there"
            await sandbox.set_network(False)
            assert await out(sandbox, "ls /sys/class/net") == "lo"
            assert await fetched(sandbox, "gateway", port=port) is None
            await sandbox.set_network(True)
            assert await fetched(sandbox, "gateway", port=port) == "there"

    async def test_two_sandboxes_with_a_network_do_not_reach_each_other(
        self, new_network: None, backend: ContainerBackend
    ) -> None:
        async with (
            on_the_host("there") as port,
            served(backend, "other's") as host,
            backend.open(SandboxSpec(network=True)) as sandbox,
        ):
            fork = await sandbox.fork()
            try:
                for one in (sandbox, fork):
                    assert await fetched(one, "gateway", port=port) == "there", "it has no network"
                    assert await fetched(one, host) is None
            finally:
                await fork.close()

    async def test_a_restart_does_not_give_back_a_network(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that stops the supervisor makes `end_processes` start the container again."""
        monkeypatch.setattr(worker, "ANSWER_S", 2.0)
        async with opened(make(), network=True) as box:
            await box.set_network(False)
            stopper = asyncio.ensure_future(box.exec("kill -STOP -1; sleep 600"))
            await asyncio.sleep(0.5)
            first = await first_process(box)
            await box.end_processes()
            assert (await stopper).exit_code == 137
            assert await first_process(box) != first, "it was not started again"
            assert await out(box, "ls /sys/class/net") == "lo"
            await box.set_network(True)
            assert await out(box, "ls /sys/class/net") != "lo"

    async def test_localhost_has_an_address_without_a_network(self, make: Make) -> None:
        look = ["python3", "-c", "import socket; print(socket.gethostbyname('localhost'))"]
        for backend in (make(), make(user="1000"), make(read_only=True)):
            async with opened(backend) as box:
                assert (await box.exec(look)).stdout == b"127.0.0.1\n"

    async def test_a_sandbox_opened_without_a_network_gets_none_unless_the_task_requires_it(
        self, make: Make
    ) -> None:
        async with opened(make(), network=False) as box:
            with pytest.raises(UnsupportedError, match="without a network"):
                await box.set_network(True)
            assert await out(box, "ls /sys/class/net") == "lo"

    async def test_a_sandbox_opened_without_a_network_gets_one_if_the_engine_can(
        self, make: Make
    ) -> None:
        backend = make()
        spec = SandboxSpec(network=False, requires=("change-network",))
        async with on_the_host("there") as port, backend.open(spec) as sandbox:
            if backend.name == "podman":
                with pytest.raises(UnsupportedError, match="was created without a network"):
                    await sandbox.set_network(True)
            else:
                await sandbox.set_network(True)
                assert await fetched(sandbox, "gateway", port=port) == "there"
                await sandbox.set_network(False)
            assert await fetched(sandbox, "gateway", port=port) is None
        await backend.aclose()

    async def test_an_option_that_forbids_the_network_overrides_the_task(self, make: Make) -> None:
        async with opened(make(network=False), allowed_hosts=("203.0.113.1",)) as box:
            await box.set_network(True)
            assert await out(box, "ls /sys/class/net") == "lo"
            await box.set_network(False, ("203.0.113.1",))
            assert await answered(box, "GET http://203.0.113.1/ HTTP/1.1") == ""
