"""For tests and benchmarks: a NATS server, a process of its own, and certificates."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from attrs import define, field

_START_S = 60.0


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = _START_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} took longer than {limit_s:g} s"
        time.sleep(0.02)


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@define
class Server:
    """`nats-server -js` with its files in a folder."""

    folder: Path
    options: Sequence[str] = ()
    scheme: str = "nats"
    port: int = field(factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it has printed."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it, over what it had stored."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["nats-server", "-js", "-a", "127.0.0.1", "-p", str(self.port)]
        command += ["-sd", str(self.folder / "store"), "-l", str(self.log), *self.options]
        self.process = subprocess.Popen(command, start_new_session=True)
        wait_for(self._listens, "nats-server")

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def require_server() -> None:
    """Skip the test where the program is not installed; in CI, fail it."""
    if shutil.which("nats-server") is None:
        assert os.environ.get("CI") != "true", "CI must have nats-server"
        pytest.skip("nats-server is not installed (Debian: apt-get install nats-server)")


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """A server of its own while the block runs; see `require_server`."""
    require_server()
    made = Server(folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def make_certificates(folder: Path) -> None:
    """``ca.pem``, and ``server`` and ``client`` (.pem and .key) that it has signed."""
    folder.mkdir()
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    # Python 3.13 asks of certificates all that RFC 5280 does.
    ca = ("-x509", "-subj", "/CN=ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(*new, *ca, "-keyout", "ca.key", "-out", "ca.pem", folder=folder)
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    for name in ("server", "client"):
        _openssl(
            *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "csr", folder=folder
        )
        by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
        _openssl("x509", "-req", "-in", "csr", *by, "-out", f"{name}.pem", folder=folder)


def _openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
