"""A Docker engine that does not see this machine's files, as in a virtual machine."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ale.errors import NotUsableError
from ale.plugin import BuildContext
from ale_sandbox_container.probing import NOT_SHARED, ask
from ale_sandbox_docker.options import DockerOptions
from ale_sandbox_docker.plugin import build, probe

pytestmark = pytest.mark.engine

_WAIT_S = 60.0


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """Address of a second engine in mount and network namespaces of its own, with an empty /tmp."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("a second engine needs dockerd and root")
    folder = Path(tempfile.mkdtemp(prefix="ale-dockerd-", dir="/var/tmp"))
    address = f"unix://{folder}/socket"
    options = [
        f"--host={address}",
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/pid",
        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
    ]
    script = 'mount -t tmpfs none /tmp && exec dockerd "$@"'
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *options],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for(engine, address, folder / "log")
        yield address
    finally:
        engine.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(_WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(engine: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            ask(address, "/_ping", 5.0)
        except OSError:
            assert engine.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        else:
            return


def test_the_probe_finds_it_unusable_and_says_why(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", elsewhere)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    found = probe()
    assert not found.usable
    assert NOT_SHARED in found.reason
    assert "engine of this machine" in (found.remedy or "")


def test_a_backend_of_it_is_refused_before_any_sandbox_is_opened(elsewhere: str) -> None:
    with pytest.raises(NotUsableError, match="does not share this machine's file system"):
        build(DockerOptions(host=elsewhere), BuildContext(environ={}))


def test_it_is_usable_where_the_sandboxes_folder_is_seen_by_both(elsewhere: str) -> None:
    folder = Path(elsewhere.removeprefix("unix://")).parent / "state"
    backend = build(DockerOptions(host=elsewhere, root=folder), BuildContext(environ={}))
    assert backend.name == "docker"
