"""Podman services that do not see this machine's files, as in a virtual machine."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ale_sandboxing.container_testing.elsewhere import ElsewhereProbes, OwnEngine, own_engine
from ale_sandboxing.container_testing.images import BUSYBOX, provide
from ale_sandboxing.container_testing.restarts import RestartProbes

pytestmark = pytest.mark.engine


def _conf(folder: Path) -> Path:
    """By default, Podman asks for more open files than root may have in some virtual machines."""
    path = folder / "containers.conf"
    path.write_text("[containers]\ndefault_ulimits = []\n")
    return path


@pytest.fixture(scope="module")
def own() -> Iterator[OwnEngine]:
    """A second service."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        pytest.skip("a second service needs podman and root")
    with own_engine(
        "podman",
        lambda folder, address: [
            *("env", f"CONTAINERS_CONF={_conf(folder)}", "podman"),
            *(f"--root={folder}/root", f"--runroot={folder}/run"),
            *("--storage-driver=vfs", "system", "service", "--time=0", address),
        ],
    ) as engine:
        provide(["podman", "--remote", "--url", engine.address], BUSYBOX)
        yield engine


class TestElsewhere(ElsewhereProbes):
    def test_it_is_usable(
        self, plugin: ModuleType, own: OwnEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CONTAINER_HOST", own.address)
        assert plugin.probe().usable


class TestRestarts(RestartProbes):
    pass
