"""A Podman service that does not see this machine's files, as in a virtual machine."""

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
from ale_sandbox_podman.options import PodmanOptions
from ale_sandbox_podman.plugin import build, probe

pytestmark = pytest.mark.engine

_WAIT_S = 60.0


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """Address of a second service in its own mount and network namespaces, with an empty /tmp."""
    if shutil.which("podman") is None or os.geteuid() != 0:
        pytest.skip("a second service needs podman and root")
    folder = Path(tempfile.mkdtemp(prefix="ale-podman-", dir="/var/tmp"))
    address = f"unix://{folder}/socket"
    options = [
        *(f"--root={folder}/root", f"--runroot={folder}/run", "--storage-driver=vfs"),
        *("system", "service", "--time=0", address),
    ]
    script = 'mount -t tmpfs none /tmp && exec podman "$@"'
    with (folder / "log").open("wb") as log:
        service = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *options],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for(service, address, folder / "log")
        yield address
    finally:
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(service: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            ask(address, "/_ping", 5.0)
        except OSError:
            assert service.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        else:
            return


def test_the_probe_finds_it_unusable_and_says_why(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_HOST", elsewhere)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    found = probe()
    assert not found.usable
    assert NOT_SHARED in found.reason


def test_a_backend_of_it_is_refused_before_any_sandbox_is_opened(elsewhere: str) -> None:
    with pytest.raises(NotUsableError, match="does not share this machine's file system"):
        build(PodmanOptions(host=elsewhere), BuildContext(environ={}))


def test_it_is_usable_where_the_sandboxes_folder_is_seen_by_both(elsewhere: str) -> None:
    folder = Path(elsewhere.removeprefix("unix://")).parent / "state"
    backend = build(PodmanOptions(host=elsewhere, root=folder), BuildContext(environ={}))
    assert backend.name == "podman"
