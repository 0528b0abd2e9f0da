"""A Docker engine that does not see this machine's files, as in a virtual machine."""

import os
import shutil
from collections.abc import Iterator
from types import ModuleType

import pytest

from ale_sandbox_container.testing.elsewhere import ElsewhereProbes, engine_elsewhere
from ale_sandbox_container.testing_images import BUSYBOX, provide

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """A second engine; in the network namespace of the machine it would remove docker0."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("a second engine needs dockerd and root")
    with engine_elsewhere(
        "dockerd",
        lambda folder, address: [
            "dockerd",
            f"--host={address}",
            f"--data-root={folder}/data",
            f"--exec-root={folder}/exec",
            f"--pidfile={folder}/pid",
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ],
    ) as address:
        provide(["docker", "--host", address], BUSYBOX)
        yield address


class TestElsewhere(ElsewhereProbes):
    def test_it_is_usable(
        self, plugin: ModuleType, elsewhere: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_HOST", elsewhere)
        assert plugin.probe().usable
