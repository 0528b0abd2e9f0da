"""What Docker's containers start with, and that nothing is left of them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from ale_sandboxing.container.sealed import SealedShells
from ale_sandboxing.container_testing.distance import DistanceProbes
from ale_sandboxing.container_testing.ends import EndProbes
from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN
from ale_sandboxing.container_testing.network import NetworkProbes
from ale_sandboxing.container_testing.privileges import PrivilegeProbes
from ale_sandboxing.container_testing.starts import StartProbes
from ale_sandboxing.container_testing.tools import Make, opened

pytestmark = pytest.mark.engine


def made_networks(shells: SealedShells, label: str, names: Sequence[str]) -> list[str]:
    """Ids of networks with this label, in the order in which they are made."""
    engine: Any = shells._engine
    about = {"Driver": "bridge", "Labels": {label: ""}, "CheckDuplicate": False}
    return [
        engine._ask("POST", "/networks/create", json={**about, "Name": name}).json()["Id"]
        for name in names
    ]


class TestStarts(StartProbes):
    container_image = BUSYBOX

    async def test_an_engine_that_stops_waits_for_no_sandbox(self, make: Make) -> None:
        backend = make()
        async with opened(backend) as box:
            engine: Any = backend._engine
            found = engine._api.inspect_container(f"ale-{box.id}")
        assert found["Config"]["StopSignal"] == "SIGKILL"


class TestDistance(DistanceProbes):
    container_image = BUSYBOX


class TestPrivileges(PrivilegeProbes):
    container_image = DEBIAN


class TestReaching(NetworkProbes):
    container_image = DEBIAN

    @pytest.fixture
    def label(self, shells: SealedShells, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """Label of the network of this test's sandboxes, which is to be removed with it."""
        engine: Any = shells._engine
        label = f"ale-test-{uuid4().hex[:12]}"
        monkeypatch.setattr("ale_sandbox_docker.engine._APART", label)
        yield label
        for network in engine._labelled("/networks", label):
            engine._ask("DELETE", f"/networks/{network['Id']}", 404)

    @pytest.fixture
    def new_network(self, label: str) -> None:
        """One in place of that of all sandboxes, which an earlier version may have made."""

    async def test_two_networks_of_one_name_that_were_made_at_once_are_not_used(
        self, make: Make, shells: SealedShells, label: str
    ) -> None:
        made_networks(shells, label, [label, label])
        async with opened(make(), network=True) as box:
            assert b"eth0" in (await box.exec("ls /sys/class/net")).stdout

    def test_many_sandboxes_that_start_at_once_make_one_network(
        self, shells: SealedShells, label: str
    ) -> None:
        engine: Any = shells._engine
        with ThreadPoolExecutor(8) as threads:
            found = {each.result() for each in [threads.submit(engine._network) for _ in range(8)]}
        assert [network["Id"] for network in engine._labelled("/networks", label)] == [*found]

    async def test_a_sandbox_is_taken_out_of_a_network_that_a_later_one_does_not_use(
        self, make: Make, shells: SealedShells, label: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = made_networks(shells, label, [f"{label}-1", f"{label}-2"])
        async with opened(make(), network=True) as box:
            engine: Any = shells._engine
            container = f"ale-{box.id}"
            networks = engine._inspect(container)["NetworkSettings"]["Networks"]
            assert [one["NetworkID"] for one in networks.values()] == [first]
            monkeypatch.setattr(engine, "_network", lambda: second)  # the first one as it sees them
            engine.connect(container, False)
            assert (await box.exec("ls /sys/class/net")).stdout.split() == [b"lo"]


class TestEnds(EndProbes):
    container_image = BUSYBOX
