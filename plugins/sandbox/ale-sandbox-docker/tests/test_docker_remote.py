"""A Docker engine behind TLS, and one behind SSH."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from attrs import frozen

from ale.errors import NotUsableError
from ale.plugin import BuildContext
from ale_sandbox_docker.options import DockerOptions
from ale_sandboxing.container_testing.elsewhere import own_engine, use
from ale_sandboxing.container_testing.fixtures import skip_without
from ale_sandboxing.container_testing.images import BUSYBOX, provide

pytestmark = pytest.mark.engine
PATIENCE_S = 30.0
# The engine takes a socket to listen on as descriptor 3, by the number of its process.
_ACTIVATE = 'exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'


def run(*argv: str | Path) -> None:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def needs(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool, path=_PATH) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, and {', '.join(tools)}; missing: {missing}")


_PATH = os.environ["PATH"] + ":/usr/sbin"


@frozen
class Behind:
    """An engine behind TLS."""

    address: str
    certificates: Path
    """Of one who may use it."""

    def environ(self, certificates: Path | None = None) -> dict[str, str]:
        return {
            "DOCKER_HOST": self.address,
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(certificates or self.certificates),
        }


def authority(folder: Path) -> Path:
    """Certificates of an engine on this machine (``server.pem``) and of a client."""
    folder.mkdir()
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    ca = folder / "ca.pem"
    run(  # Python 3.13 asks of certificates all that RFC 5280 does
        *("openssl", "req", "-x509", *key, "-subj", "/CN=authority"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        *("-keyout", folder / "ca.key", "-out", ca),
    )
    for name, kept in (("server", "server.key"), ("cert", "key.pem")):
        request, also = folder / f"{name}.csr", folder / f"{name}.ext"
        also.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        run(
            *("openssl", "req", *key, "-subj", f"/CN={name}"),
            *("-keyout", folder / kept, "-out", request),
        )
        run(
            *("openssl", "x509", "-req", "-in", request, "-extfile", also, "-days", "2"),
            *("-CA", ca, "-CAkey", folder / "ca.key", "-CAcreateserial"),
            *("-out", folder / f"{name}.pem"),
        )
    return folder


def tls_engine(folder: Path, address: str, files: Path) -> list[str]:
    return [
        *("sh", "-c", _ACTIVATE, "sh", "dockerd", f"--host={address}", "--host=fd://"),
        *(f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--tlsverify"),
        f"--tlscacert={files}/ca.pem",
        *(f"--tlscert={files}/server.pem", f"--tlskey={files}/server.key"),
    ]


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    needs("dockerd", "openssl")
    # Not below /tmp, which the engine does not see.
    certificates = authority(Path("/var/tmp") / f"ale-certificates-{os.getpid()}")
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            with own_engine("dockerd", lambda *at: tls_engine(*at, certificates), listener) as own:
                provide(["docker", "--host", own.address], BUSYBOX)
                yield Behind(f"tcp://127.0.0.1:{port}", certificates)
    finally:
        shutil.rmtree(certificates)


async def test_all_works_over_tls(
    plugin: ModuleType, behind: Behind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What other programs trust plays no part.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(behind.certificates / "cert.pem"))
    options = DockerOptions(image=BUSYBOX)
    await use(plugin.build(options, BuildContext(environ=behind.environ())), tmp_path)


def test_the_probe_uses_the_certificates(
    plugin: ModuleType, behind: Behind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in behind.environ().items():
        monkeypatch.setenv(name, value)
    assert plugin.probe().usable
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    found = plugin.probe()
    assert found.reason == f"DOCKER_TLS_VERIFY is set and {tmp_path}/ca.pem is missing"
    assert not found.usable
    assert "DOCKER_CERT_PATH" in found.remedy


def test_an_engine_or_a_client_of_another_authority_is_refused(
    plugin: ModuleType, behind: Behind, tmp_path: Path
) -> None:
    other = authority(tmp_path / "other")
    with pytest.raises(NotUsableError, match="CERTIFICATE_VERIFY_FAILED"):
        build(plugin, behind.environ(other))
    shutil.copy(behind.certificates / "ca.pem", other)
    with pytest.raises(NotUsableError, match="docker does not answer"):
        build(plugin, behind.environ(other))
    with pytest.raises(NotUsableError, match="HTTPS"):
        build(plugin, {"DOCKER_HOST": behind.address})


def build(plugin: ModuleType, environ: dict[str, str]) -> None:
    plugin.build(DockerOptions(image=BUSYBOX), BuildContext(environ=environ))


def test_an_address_with_ssh_is_refused_with_what_works(plugin: ModuleType) -> None:
    with pytest.raises(NotUsableError, match=r"ssh://host: .* forward its socket: ssh -NL"):
        build(plugin, {"DOCKER_HOST": "ssh://host"})


@pytest.fixture
def forwarded(plugin: ModuleType, tmp_path: Path) -> Iterator[str]:
    """The socket of this machine's engine, at this end of an SSH connection to this machine."""
    needs("dockerd", "sshd", "ssh", "ssh-keygen")
    skip_without(plugin, BUSYBOX)
    for name in ("host", "mine"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host_key = (tmp_path / "host.pub").read_text()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {host_key}")
    separated = Path("/run/sshd")
    made = not separated.exists()
    separated.mkdir(mode=0o755, exist_ok=True)
    sshd = [
        *(str(shutil.which("sshd", path=_PATH)), "-D", "-f", "/dev/null"),
        *options(ListenAddress="127.0.0.1", Port=port, PidFile="none", UsePAM="no"),
        *options(HostKey=tmp_path / "host", AuthorizedKeysFile=tmp_path / "mine.pub"),
        *options(PasswordAuthentication="no", StrictModes="no"),
    ]
    socket_here = tmp_path / "engine.sock"
    ssh = [
        *("ssh", "-F", "/dev/null", "-i", str(tmp_path / "mine")),
        *options(UserKnownHostsFile=tmp_path / "known", ExitOnForwardFailure="yes", Port=port),
        *("-NL", f"{socket_here}:/var/run/docker.sock", "root@127.0.0.1"),
    ]
    try:
        answers = running(sshd, lambda: connects(("127.0.0.1", port)))
        with answers, running(ssh, socket_here.exists):
            yield f"unix://{socket_here}"
    finally:
        if made:
            separated.rmdir()


def options(**named: object) -> list[str]:
    return [f"-o{name}={value}" for name, value in named.items()]


@contextlib.contextmanager
def running(argv: Sequence[str], ready: Callable[[], bool]) -> Iterator[None]:
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not ready():
            assert process.poll() is None, argv
            assert time.monotonic() < deadline, argv
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def connects(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_all_works_through_a_socket_that_ssh_forwards(
    plugin: ModuleType, forwarded: str, tmp_path: Path
) -> None:
    found = DockerOptions(image=BUSYBOX, host=forwarded)
    await use(plugin.build(found, BuildContext()), tmp_path)
