"""A Docker engine that does not see this machine's files, as in a virtual machine."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ale_sandboxing.container_testing.elsewhere import (
    INSIDE,
    PYTHON,
    ElsewhereProbes,
    OwnEngine,
    imported,
    own_engine,
)
from ale_sandboxing.container_testing.fixtures import skip_without
from ale_sandboxing.container_testing.images import BUSYBOX, provide
from ale_sandboxing.container_testing.restarts import RestartProbes

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def own() -> Iterator[OwnEngine]:
    """A second engine; in the network namespace of the machine it would remove docker0."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("a second engine needs dockerd and root")
    with own_engine(
        "dockerd",
        lambda folder, address: [
            "dockerd",
            f"--host={address}",
            f"--data-root={folder}/data",
            f"--exec-root={folder}/exec",
            f"--pidfile={folder}/pid",
            *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        ],
    ) as engine:
        provide(["docker", "--host", engine.address], BUSYBOX)
        yield engine


class TestElsewhere(ElsewhereProbes):
    def test_it_is_usable(
        self, plugin: ModuleType, own: OwnEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_HOST", own.address)
        assert plugin.probe().usable


class TestRestarts(RestartProbes):
    pass


HIDDEN = """\
import os, select, signal, sys
names = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
sys.modules.update(dict.fromkeys(names))
del os.pidfd_open, select.epoll, signal.pidfd_send_signal
"""
"""What only Linux has, or only Linux and macOS."""


def test_ale_works_without_what_other_systems_lack(plugin: ModuleType) -> None:
    """As for Docker Desktop: it shows what is imported and called, not another system."""
    skip_without(plugin, BUSYBOX)
    options = json.dumps({"image": BUSYBOX})
    command = [sys.executable, "-c", HIDDEN + INSIDE, "ale_sandbox_docker.plugin", options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "b'from inside' 3\n", done.stderr[-2000:]


def test_ale_works_in_a_container_that_has_the_engines_socket(plugin: ModuleType) -> None:
    skip_without(plugin, BUSYBOX)
    # This machine's interpreter with its libraries, whatever the image has.
    system = [path for path in ("/usr", "/lib", "/lib64") if Path(path).is_dir()]
    paths = imported()
    done = subprocess.run(
        [
            *("docker", "run", "--rm", "--network=none"),
            *(f"--volume={path}:{path}:ro" for path in {*system, sys.base_prefix, *paths}),
            "--volume=/var/run/docker.sock:/var/run/docker.sock",
            *("--env", f"PYTHONPATH={os.pathsep.join(paths)}"),
            *(BUSYBOX, f"{sys.base_prefix}/{PYTHON}", "-c", INSIDE),
            *("ale_sandbox_docker.plugin", json.dumps({"image": BUSYBOX})),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "b'from inside' 3\n", done.stderr[-2000:]
