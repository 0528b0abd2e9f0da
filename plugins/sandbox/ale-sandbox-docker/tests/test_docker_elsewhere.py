"""A Docker engine that does not see this machine's files, as in a virtual machine."""

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from ale_sandbox_container.testing.elsewhere import ElsewhereProbes, OwnEngine, own_engine
from ale_sandbox_container.testing.restarts import RestartProbes
from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN, provide

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


@pytest.fixture
def elsewhere(own: OwnEngine) -> str:
    return own.address


class TestElsewhere(ElsewhereProbes):
    def test_it_is_usable(
        self, plugin: ModuleType, elsewhere: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_HOST", elsewhere)
        assert plugin.probe().usable


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
class TestRestarts(RestartProbes):
    @pytest.fixture(autouse=True)
    def no_sockets(self) -> Iterator[None]:
        """The SDK forgets to close those that it could not connect."""
        yield
        gc.collect()


INSIDE = """
import asyncio
from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandbox_docker.plugin import DockerOptions, build

async def main():
    backend = build(DockerOptions(image="ale-test-busybox:2"), BuildContext())
    async with backend.open(SandboxSpec()) as box:
        await box.write("file", b"from inside")
        session = await box.session()
        print((await box.exec("cat file")).stdout, (await session.run("exit 3")).exit_code)
    await backend.aclose()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image's Python is 3.11")
def test_ale_works_in_a_container_that_has_the_engines_socket() -> None:
    provide(["docker"], BUSYBOX)
    provide(["docker"], DEBIAN)
    version = f"python3.{sys.version_info.minor}"
    # Not the standard library, which the image has; its Python is of the same version.
    own = (f"lib/{version}", "lib-dynload")
    mine = [path for path in sys.path if Path(path).is_dir() and not path.endswith(own)]
    mounts = [f"--volume={path}:{path}:ro" for path in mine]
    done = subprocess.run(
        [
            *("docker", "run", "--rm", "--network=none", *mounts),
            "--volume=/var/run/docker.sock:/var/run/docker.sock",
            *("--env", f"PYTHONPATH={':'.join(mine)}", DEBIAN, "python3", "-c", INSIDE),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "b'from inside' 3\n", done.stderr[-2000:]
