"""Weights that are sent through torch.distributed: the server kit, and what can go wrong."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import ale_servers.broadcast
from ale.errors import AleError, LLMError
from ale.plugin import BuildContext
from ale.testing.waiting import wait_for
from ale_llm_policy import broadcast
from ale_llm_policy.broadcast import BroadcastWeights
from ale_llm_policy.build import _channel, build_servers, wrap_policy
from ale_llm_policy.options import PolicyOptions, ServersOptions
from ale_llm_policy.testing import new_policy
from ale_servers.address import Address
from ale_servers.broadcast import OtherWeightsError, Reader
from ale_servers.protocol import InferenceServer, WeightsError
from ale_servers.records import Weights
from ale_servers.testing.contract import ServerContract, ServerLab

from .test_llm_policy_server import Lab, TestPacked
from .test_llm_policy_shared import tensors

HERE = Address("127.0.0.1")
CPU = torch.device("cpu")


class SendingLab(Lab):
    """Each version has a sender of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.senders: list[BroadcastWeights] = []

    def publish(self, version: int) -> Weights:
        self.senders.append(BroadcastWeights("gloo", CPU, HERE))
        return self.replace(version)

    def replace(self, version: int) -> Weights:
        """Send this version in place of the one that was published last."""
        return self.senders[-1].publish(
            version, dict(self.policy(version).model.named_parameters())
        )


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SendingLab]:
    lab = SendingLab(tmp_path / "weights")
    yield lab
    for each in lab.senders:
        each.remove()


def sent(weights: Weights, **fields: Any) -> Weights:
    """The same weights with other `records.Broadcast` fields."""
    assert weights.broadcast is not None
    place = msgspec.structs.replace(weights.broadcast, **fields)
    return msgspec.structs.replace(weights, broadcast=place)


class TestGloo(ServerContract):
    decoder = "packed"
    llm, bare = TestPacked.llm, TestPacked.bare

    @pytest.fixture
    def lab(self, lab: SendingLab) -> ServerLab:
        return lab

    @pytest.fixture
    def wrong(self, lab: SendingLab) -> Sequence[Weights]:
        good, replaced = lab.publish(1), lab.publish(2)
        lab.replace(3)
        assert good.broadcast is not None
        return [
            sent(good, key="another"),
            sent(good, parts=good.broadcast.parts[1:]),
            msgspec.structs.replace(good, digest="0" * 64),
            replaced,
        ]


@pytest.fixture
def sender() -> Iterator[BroadcastWeights]:
    sender = BroadcastWeights("gloo", CPU, HERE)
    yield sender
    sender.remove()


def reader(weights: Weights) -> Reader:
    return Reader(msgspec.to_builtins(weights.broadcast))


def received(reader: Reader, weights: Weights) -> dict[str, torch.Tensor]:
    assert weights.broadcast is not None
    parts = [msgspec.to_builtins(each) for each in weights.broadcast.parts]
    return dict(reader.read(weights.digest, parts))


def all_received(readers: Sequence[Reader], weights: Weights) -> list[dict[str, torch.Tensor]]:
    """As a pool updates its servers: all prepare, then all read."""
    for each in readers:
        each.ask("prepare", weights.digest)
    with ThreadPoolExecutor(len(readers)) as threads:
        return [*threads.map(lambda each: received(each, weights), readers)]


def check_equal(found: dict[str, torch.Tensor], version: int) -> None:
    assert found.keys() == tensors(version).keys()
    for name, tensor in tensors(version).items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_all_readers_get_the_weights_at_once_and_to_the_bit(sender: BroadcastWeights) -> None:
    readers: list[Reader] = []
    groups = []
    for version in (1, 2, 3):
        published = sender.publish(version, tensors(version))
        readers = readers or [reader(published) for _ in range(3)]
        for found in all_received(readers, published):
            check_equal(found, version)
        groups.append(sender._group)
    assert groups[0].size() == 4
    assert groups[0] is groups[1] is groups[2]
    for each in readers:
        each.close()


def test_what_the_trainer_changes_later_is_not_sent(sender: BroadcastWeights) -> None:
    given = {name: each.clone() for name, each in tensors(1).items()}
    published = sender.publish(1, given)
    given["a"].zero_()
    one = reader(published)
    check_equal(received(one, published), 1)
    one.close()


def test_a_reader_that_joins_or_leaves_changes_the_group(sender: BroadcastWeights) -> None:
    first = sender.publish(1, tensors(1))
    one, other = reader(first), reader(first)
    check_equal(received(one, first), 1)
    check_equal(received(other, first), 1)  # it has missed the update, and catches up
    second = sender.publish(2, tensors(2))
    for found in all_received((one, other), second):
        check_equal(found, 2)
    assert sender._group.size() == 3
    third = sender.publish(3, tensors(3))
    for each in (one, other):
        each.ask("prepare", third.digest)
    other.close()
    check_equal(received(one, third), 3)
    assert sender._group.size() == 2
    one.close()


def test_who_has_prepared_and_does_not_read_is_not_waited_for_longer(
    sender: BroadcastWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "_GATHER_S", 0.3)
    published = sender.publish(1, tensors(1))
    one, late = reader(published), reader(published)
    late.ask("prepare", published.digest)
    started = time.monotonic()
    check_equal(received(one, published), 1)
    assert time.monotonic() - started > 0.25
    check_equal(received(late, published), 1)
    one.close()
    late.close()


def test_a_reader_that_waits_for_weights_that_are_replaced_is_refused(
    sender: BroadcastWeights,
) -> None:
    first = sender.publish(1, tensors(1))
    waiting, other = reader(first), reader(first)
    other.ask("prepare", first.digest)  # and does not read
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(received, waiting, first)
        wait_for(lambda: sender._readers(), "its request")
        second = sender.publish(2, tensors(2))
        with pytest.raises(OtherWeightsError, match=f"has {second.digest[:12]} by now"):
            asked.result(20)
    check_equal(received(waiting, second), 2)
    waiting.close()
    other.close()


@pytest.mark.parametrize("wrong", [{"key": "another"}, {"digest": "0" * 64}])
def test_who_asks_wrongly_gets_nothing_and_does_not_disturb(
    sender: BroadcastWeights, wrong: dict[str, str]
) -> None:
    published = sender.publish(1, tensors(1))
    assert published.broadcast is not None
    good = {"key": published.broadcast.key, "verb": "read", "digest": published.digest}
    with socket.create_connection(("127.0.0.1", published.broadcast.port)) as connection:
        connection.sendall(json.dumps({**good, **wrong}).encode() + b"\n")
        assert "refusal" in json.loads(connection.makefile("rb").readline())
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"{}\n", b"\xff\n"):
        with socket.create_connection(("127.0.0.1", published.broadcast.port)) as connection:
            connection.sendall(nonsense)
            assert connection.makefile("rb").readline() == b""
    one = reader(published)
    check_equal(received(one, published), 1)
    one.close()


KILLED = """
import json, sys
from ale_servers.broadcast import Reader
place, digest = json.loads(sys.argv[1]), sys.argv[2]
for name, _ in Reader(place).read(digest, place["parts"]):
    print(name, flush=True)
    sys.stdin.read()
"""


def test_a_reader_that_is_killed_in_the_middle_fails_the_others_and_they_can_try_again(
    sender: BroadcastWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Gloo notices only by this that another reader, which was to pass on the rest, has left.
    monkeypatch.setattr(ale_servers.broadcast, "TRANSFER_S", 3.0)
    large = {f"t{number}": torch.full((1 << 22,), float(number)) for number in range(8)}
    published = sender.publish(1, large)
    one = reader(published)
    one.ask("prepare", published.digest)
    place = json.dumps(msgspec.to_builtins(published.broadcast))
    command = [sys.executable, "-c", KILLED, place, published.digest]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        wait_for(lambda: sender._readers(), "the other reader")
        failed = threading.Event()

        def read() -> None:
            with pytest.raises(OSError, match="the transfer of weights failed"):
                received(one, published)
            failed.set()

        thread = threading.Thread(target=read)
        thread.start()
        assert process.stdout is not None
        assert process.stdout.readline() == "t0\n"
        process.send_signal(signal.SIGKILL)
        assert failed.wait(20)
        thread.join()
    again = received(one, published)
    assert all(torch.equal(again[name], tensor) for name, tensor in large.items())
    one.close()


async def test_a_trainer_that_has_gone_is_named_and_the_old_weights_stay(
    lab: SendingLab,
) -> None:
    llm = wrap_policy(new_policy(seed=0), PolicyOptions())
    server: InferenceServer = llm.server
    published = lab.publish(1)
    await server.prepare(published)
    lab.senders[-1].remove()
    with pytest.raises(LLMError, match=r"weights can't be had from the trainer at 127\.0\.0\.1"):
        await server.update(published)
    assert (await server.status()).version == 0
    await server.update(lab.publish(2))
    assert (await server.status()).version == 2
    await llm.aclose()


async def test_weights_of_another_model_are_refused_before_they_are_sent(
    sender: BroadcastWeights,
) -> None:
    llm = wrap_policy(new_policy(seed=0), PolicyOptions())
    server: InferenceServer = llm.server
    with pytest.raises(WeightsError, match="the model has no parameters a, b, bytes"):
        await server.prepare(sender.publish(1, tensors(1)))
    await llm.aclose()


def test_nothing_is_left_when_it_is_removed(sender: BroadcastWeights) -> None:
    before = threading.active_count()
    published = sender.publish(1, tensors(1))
    one = reader(published)
    check_equal(received(one, published), 1)
    sender.remove()
    wait_for(lambda: threading.active_count() <= before, "the end of its threads")
    with pytest.raises(OSError, match="weights can't be had"):
        one.ask("check", published.digest)
    again = sender.publish(2, tensors(2))  # it can be used again
    two = reader(again)
    check_equal(received(two, again), 2)
    two.close()


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sender = BroadcastWeights("gloo", CPU, Address("127.0.0.1", port))
        with pytest.raises(AleError, match=rf"can't be handed out at 127\.0\.0\.1:{port}: Address"):
            sender.publish(1, tensors(1))


@pytest.mark.parametrize("more", [{"weights": Path("w")}, {"adapter": "mine"}])
def test_options_of_the_folder_are_refused(more: dict[str, Any]) -> None:
    (name,) = more
    with pytest.raises(ValueError, match=f"'{name}' is for 'weights_channel: folder'"):
        ServersOptions(urls=("http://127.0.0.1:1",), weights_channel="gloo", **more)


@pytest.mark.parametrize(
    ("own", "host"),
    [
        ({"start": 1}, "127.0.0.1"),
        ({"urls": ("http://127.0.0.1:1",)}, "127.0.0.1"),
        ({"urls": ("http://127.0.0.1:1",), "weights_address": "auto"}, ""),
    ],
)
def test_weights_are_sent_to_other_machines_only_if_the_config_says_so(
    tmp_path: Path, own: dict[str, Any], host: str
) -> None:
    options = ServersOptions(weights_channel="gloo", **own)
    channel = build_servers(options, BuildContext(run_directory=tmp_path))._channel
    published = channel.publish(1, tensors(1))
    channel.remove()
    assert published.broadcast is not None
    assert published.broadcast.host == host


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
async def test_nccl_needs_a_gpu() -> None:
    options = ServersOptions(urls=("http://127.0.0.1:1",), weights_channel="nccl")
    llm = build_servers(options, BuildContext())
    with pytest.raises(LLMError, match=r"nccl sends .* llm.device is 'cpu'; expected: a GPU"):
        await llm.check()
    await llm.aclose()


def own_listeners() -> set[str]:
    """The addresses at which this process listens, in hexadecimal digits."""
    links = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                found.add(fields[1].partition(":")[0])
    return found


def test_neither_the_run_nor_torch_listens_beyond_loopback_unasked(tmp_path: Path) -> None:
    options = ServersOptions(model=tmp_path, urls=("http://127.0.0.1:9",), weights_channel="gloo")
    before = own_listeners()
    channel = _channel(options, tmp_path, CPU)
    assert isinstance(channel, BroadcastWeights)
    try:
        channel.publish(1, {"a": torch.zeros(1)})
        assert own_listeners() - before <= {"0100007F"}
        assert own_listeners()
    finally:
        channel.remove()
