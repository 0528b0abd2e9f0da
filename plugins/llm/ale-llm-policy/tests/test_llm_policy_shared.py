"""Weights in shared memory: the server kit, and what can go wrong."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ale.errors import AleError
from ale_llm_policy import shared
from ale_llm_policy.options import ServersOptions
from ale_llm_policy.shared import SharedWeights
from ale_llm_policy.testing import new_policy
from ale_servers import shared_memory
from ale_servers.protocol import InferenceServer, WeightsError
from ale_servers.records import Weights
from ale_servers.testing.contract import ServerContract, ServerLab, in_memory, wrong_in_memory

from .test_llm_policy_server import Lab, TestPacked


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /dev/shm."""
    monkeypatch.setattr(shared, "_SHARED", tmp_path)
    return tmp_path


class SharedLab(Lab):
    """Each version stays in memory of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.shared: list[SharedWeights] = []

    def publish(self, version: int) -> Weights:
        self.shared.append(SharedWeights(None))
        tensors = dict(self.policy(version).model.named_parameters())
        return self.shared[-1].publish(version, tensors)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SharedLab]:
    lab = SharedLab(tmp_path / "weights")
    yield lab
    for each in lab.shared:
        each.remove()


class TestShared(ServerContract):
    decoder = "packed"
    llm, bare = TestPacked.llm, TestPacked.bare

    @pytest.fixture
    def lab(self, lab: SharedLab) -> ServerLab:
        return lab

    @pytest.fixture
    def wrong(self, lab: SharedLab) -> Sequence[Weights]:
        return wrong(lab)


def wrong(lab: SharedLab) -> list[Weights]:
    """Weights that no server can take."""
    good, replaced = lab.publish(1), lab.publish(2)
    lab.shared[-1].publish(3, dict(lab.policy(3).model.named_parameters()))
    assert good.memory is not None
    longer = in_memory(good, size=good.memory.size + 1_000_000)
    return [*wrong_in_memory(good, replaced), longer]


@pytest.fixture
def shares() -> Iterator[SharedWeights]:
    shares = SharedWeights(None)
    yield shares
    shares.remove()


def tensors(seed: int) -> Mapping[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).to(torch.bfloat16),
        "scalar": torch.tensor(float(seed)),
        "empty": torch.zeros(0, 4),
        "bytes": torch.arange(seed, seed + 9, dtype=torch.uint8),
        "transposed": torch.randn(4, 6).T,
    }


def test_what_is_read_equals_what_was_written_to_the_bit(shares: SharedWeights) -> None:
    for version in (1, 2):
        published = shares.publish(version, tensors(version))
        assert published.memory is not None
        assert (published.version, published.folder) == (version, "")
        found = shared.read(published.memory, published.digest)
        assert found.keys() == tensors(version).keys()
        for name, tensor in tensors(version).items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name], tensor)


def test_the_digest_is_that_of_a_folder(shares: SharedWeights, tmp_path: Path) -> None:
    from ale_llm_policy.pretrained import weights

    weights.write(tmp_path, tensors(1))
    assert shares.publish(1, tensors(1)).digest == weights.digest(weights.read(tmp_path))


def test_a_version_that_was_replaced_is_not_read(shares: SharedWeights) -> None:
    first = shares.publish(1, tensors(1))
    shares.publish(2, tensors(2))
    assert first.memory is not None
    with pytest.raises(OSError, match=r"the shared memory holds the weights \w+; expected"):
        shared.read(first.memory, first.digest)


def test_what_is_replaced_while_it_is_read_is_refused(
    shares: SharedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader finds the first version's digest, and then the second one's values."""
    first = shares.publish(1, tensors(1))
    assert first.memory is not None
    views = shared_memory.views

    def slow(*given: Any) -> Any:
        for number, each in enumerate(views(*given)):
            if number == 2:
                monkeypatch.undo()
                shares.publish(2, tensors(2))
            yield each

    monkeypatch.setattr(shared, "views", slow)
    with pytest.raises(OSError, match="the shared memory holds the weights"):
        shared.read(first.memory, first.digest)


def test_nobody_reads_weights_while_they_are_written(
    shares: SharedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shares.publish(1, tensors(1))
    assert first.memory is not None
    copying, go_on = threading.Event(), threading.Event()
    digest = shared.weights.digest

    def held(given: Any) -> str:
        copying.set()
        assert go_on.wait(10)
        return digest(given)

    monkeypatch.setattr(shared.weights, "digest", held)
    thread = threading.Thread(target=shares.publish, args=(2, tensors(2)))
    thread.start()
    assert copying.wait(10)
    with pytest.raises(OSError, match="weights that are being written"):
        shared.read(first.memory, first.digest)
    go_on.set()
    thread.join()


async def test_a_server_on_another_machine_refuses_and_says_what_to_set(lab: SharedLab) -> None:
    from ale_llm_policy.build import wrap_policy
    from ale_llm_policy.options import PolicyOptions

    llm = wrap_policy(new_policy(seed=0), PolicyOptions())
    server: InferenceServer = llm.server
    published = lab.publish(1)
    with pytest.raises(WeightsError, match=r"another machine; set 'weights_channel: folder'"):
        await server.prepare(in_memory(published, machine="another"))
    said = r"can't be read: .*/nowhere/weights'; if .*/dev/shm.* set 'weights_channel: folder'"
    with pytest.raises(WeightsError, match=said):
        await server.prepare(in_memory(published, file="/nowhere/weights"))
    await server.prepare(published)
    await llm.aclose()


def test_memory_that_there_is_not_is_refused_before_anything_is_written(
    shares: SharedWeights, folder: Path
) -> None:
    large = torch.zeros(1).expand(1 << 46)
    said = rf"GB of weights can't be shared: {folder} has .* GB free; make it larger .*--shm-size"
    with pytest.raises(AleError, match=said):
        shares.publish(1, {"large": large})
    assert re.match(rf"[^ ]+ {said}", shares.obstacle({"large": large}) or "")
    assert shares.obstacle(tensors(1)) is None
    shares.remove()
    assert not [*folder.iterdir()]


@pytest.mark.parametrize("more", [torch.zeros(1000), torch.ones(4, dtype=torch.float16)])
def test_weights_of_another_size_or_type_get_new_memory(
    shares: SharedWeights, folder: Path, more: torch.Tensor
) -> None:
    shares.publish(1, {**tensors(1), "more": torch.zeros(4, dtype=torch.bfloat16)})
    other = {**tensors(2), "more": more}
    published = shares.publish(2, other)
    assert published.memory is not None
    found = shared.read(published.memory, published.digest)
    for name, tensor in other.items():
        assert torch.equal(found[name], tensor)
    assert len([*folder.iterdir()]) == 1


KILLED = """
import sys, torch
from pathlib import Path
from ale_llm_policy import shared
shared._SHARED = Path(sys.argv[1])
shares = shared.SharedWeights(None)
shares.publish(1, {"a": torch.zeros(9)})
print("published", flush=True)
sys.stdin.read()
"""


def test_memory_of_a_killed_process_is_freed_by_the_next(
    shares: SharedWeights, folder: Path
) -> None:
    command = [sys.executable, "-c", KILLED, str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "published\n"
        shares.publish(1, tensors(1))
        assert len([*folder.iterdir()]) == 2  # that of a living process is left alone
        process.send_signal(signal.SIGKILL)
    shares.remove()
    shares.publish(1, tensors(1))
    assert len([*folder.iterdir()]) == 1
    shares.remove()
    assert not [*folder.iterdir()]


def test_only_this_user_may_read_the_memory(shares: SharedWeights, folder: Path) -> None:
    published = shares.publish(1, tensors(1))
    assert published.memory is not None
    file = Path(published.memory.file)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "more", [{"weights": Path("w")}, {"weights_address": "auto"}, {"adapter": "mine"}]
)
def test_options_of_the_folder_are_refused(more: dict[str, Any]) -> None:
    (name,) = more
    with pytest.raises(ValueError, match=f"'{name}' is for 'weights_channel: folder'"):
        ServersOptions(urls=("http://127.0.0.1:1",), weights_channel="shared_memory", **more)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
async def test_memory_of_a_gpu_needs_one() -> None:
    from ale.errors import LLMError
    from ale.plugin import BuildContext
    from ale_llm_policy.build import build_servers

    options = ServersOptions(urls=("http://127.0.0.1:1",), weights_channel="cuda_ipc")
    llm = build_servers(options, BuildContext())
    with pytest.raises(LLMError, match=r"cuda_ipc shares .* llm.device is 'cpu'; expected: a GPU"):
        await llm.check()
    await llm.aclose()
