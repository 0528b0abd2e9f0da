"""How a server is reached: errors that say what to do, TLS, users, tokens and credentials."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nkeys
import pytest

from ale.errors import AleError
from ale.runs import Registry
from ale.testing.executor import KitRun, job, spec_of
from ale.types import Episode, Job
from ale.workers import Worker
from ale_nats.executor import NatsExecutor
from ale_nats.options import NatsOptions
from ale_nats.testing import WorkerGroup
from ale_nats_client.client import close, connect
from ale_nats_client.options import ServerOptions
from ale_nats_client.testing import Server, free_port, make_certificates

Environ = Mapping[str, str]
ONE = job("one")


async def check(options: NatsOptions, environ: Environ | None = None) -> None:
    await NatsExecutor(options, environ or {}).check()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts servers with options."""
    made: list[Server] = []

    def start(*options: str, scheme: str = "nats") -> Server:
        server = Server(tmp_path / f"server{len(made)}", options, scheme=scheme)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.stop()


async def test_a_server_that_is_not_there_is_named() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(AleError, match=f"no NATS server can be reached at {url}"):
        await check(NatsOptions(url=url))


@pytest.fixture
def without_jetstream() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(["nats-server", "-a", "127.0.0.1", "-p", str(port)])
    yield f"nats://127.0.0.1:{port}"
    process.kill()
    process.wait()


async def test_a_server_without_jetstream_is_refused(without_jetstream: str) -> None:
    with pytest.raises(AleError, match=r"has no JetStream: start it with -js"):
        await _eventually(NatsOptions(url=without_jetstream))


async def _eventually(options: NatsOptions) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            await check(options)
        except AleError as error:
            if "no NATS server can be reached" not in str(error) or time.monotonic() > deadline:
                raise


@pytest.mark.parametrize("url", ["http://h:1", "h:4222", "nats://"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected nats://HOST:PORT"):
        ServerOptions(url=url)


def test_a_password_in_a_url_is_refused() -> None:
    with pytest.raises(ValueError, match="must contain no user or password"):
        ServerOptions(url="nats://me:secret@h:4222")


async def test_users_and_passwords_come_from_the_environment(started: Any) -> None:
    server = started("--user", "ale", "--pass", "right-password")
    names = {"user_env": "NATS_USER", "password_env": "NATS_PASSWORD"}
    right = {"NATS_USER": "ale", "NATS_PASSWORD": "right-password"}
    await check(NatsOptions(url=server.url, **names), right)
    wrong = {**right, "NATS_PASSWORD": "wrong"}
    with pytest.raises(AleError, match=r"refuses this client.*check credentials"):
        await check(NatsOptions(url=server.url, **names), wrong)
    with pytest.raises(AleError, match=r"refuses this client"):
        await check(NatsOptions(url=server.url))
    with pytest.raises(AleError, match="user_env names the variable NATS_USER, which is not set"):
        await check(NatsOptions(url=server.url, **names))


async def test_a_token_comes_from_the_environment(started: Any) -> None:
    server = started("--auth", "a-token")
    await check(NatsOptions(url=server.url, token_env="T"), {"T": "a-token"})
    with pytest.raises(AleError, match="refuses this client"):
        await check(NatsOptions(url=server.url, token_env="T"), {"T": "another"})


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "certificates")
    return tmp_path / "certificates"


async def one_episode(
    options: NatsOptions, environ: Environ, folder: Path, asked: Job = ONE
) -> Episode:
    """The episode of a job, run by a worker of the server."""
    spec = spec_of(folder, "one")
    here = Worker.build(spec, Registry.installed(), {})
    run = KitRun(executor=NatsExecutor(options, environ), spec=spec, here=here)
    async with run.open() as workers:
        return await run.stored(workers, asked)


async def test_runs_and_workers_speak_tls_with_certificates_of_their_own(
    started: Any, certificates: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {name: str(certificates / name) for name in ("ca.pem", "server.pem", "server.key")}
    server = started(
        *("--tlsverify", "--tlscacert", files["ca.pem"]),
        *("--tlscert", files["server.pem"], "--tlskey", files["server.key"]),
        scheme="tls",
    )
    own = {
        "tls_ca": certificates / "ca.pem",
        "tls_certificate": certificates / "client.pem",
        "tls_key": certificates / "client.key",
    }
    flags = [f"--nats-login={name}={path}" for name, path in own.items()]
    group = WorkerGroup(server.url, tmp_path / "workers", flags)
    try:
        group.start()
        options = NatsOptions(url=server.url, **own)
        assert (await one_episode(options, {}, tmp_path)).reward == 1.0
    finally:
        group.stop()
    with pytest.raises(AleError, match=r"TLS failed: .*CERTIFICATE_VERIFY_FAILED"):
        await check(NatsOptions(url=server.url))
    with pytest.raises(AleError, match=r"at tls://127\.0\.0\.1"):
        await check(NatsOptions(url=server.url, tls_ca=certificates / "ca.pem"))
    with pytest.raises(AleError, match=r"tls_ca: there is no file .*absent\.pem"):
        await check(NatsOptions(url=server.url, tls_ca=certificates / "absent.pem"))
    with pytest.raises(AleError, match=r"tls_ca \(.*server\.key\) can't be used: .*CERTIFICATE"):
        await check(NatsOptions(url=server.url, tls_ca=certificates / "server.key"))
    with pytest.raises(AleError, match=r"client\.pem\) with tls_key \(not set: in the same file\)"):
        await check(NatsOptions(url=server.url, tls_certificate=own["tls_certificate"]))
    assert not [record for record in caplog.records if record.name == "asyncio"]


def _user(name: str, publish: Sequence[str], subscribe: Sequence[str]) -> dict[str, Any]:
    permissions = {"publish": [*publish], "subscribe": [*subscribe]}
    return {"user": name, "password": f"{name}-secret", "permissions": permissions}


async def test_the_documented_permissions_suffice(started: Any, tmp_path: Path) -> None:
    api = ["$JS.API.>", "$JS.ACK.>", "$O.>"]
    tells = [f"ale.v1.{kind}.>" for kind in ("stage", "refused", "episode")]
    users = [
        _user("run", ["ale.v1.>", *api], ["ale.v1.>", "_INBOX.>"]),
        _user("worker", [*tells, *api], ["ale.v1.>", "_INBOX.>"]),
    ]
    config = tmp_path / "server.conf"
    config.write_text(json.dumps({"authorization": {"users": users}}))
    server = started("-c", str(config))
    flags = ("--nats-login=user_env=NATS_USER", "--nats-login=password_env=NATS_PASSWORD")
    group = WorkerGroup(server.url, tmp_path / "workers", flags)
    try:
        group.start(environ={"NATS_USER": "worker", "NATS_PASSWORD": "worker-secret"})
        options = NatsOptions(url=server.url, user_env="U", password_env="P")
        large = job("large", "head -c 3000000 /dev/zero | tr '\\0' x; touch done")
        environ = {"U": "run", "P": "run-secret"}
        assert (await one_episode(options, environ, tmp_path, large)).reward == 1.0
    finally:
        group.stop()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(issuer: Any, subject: str, kind: str, **claims: Any) -> str:
    """A NATS JWT, version 2, signed by the key of its issuer."""
    head = _text(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    body = {
        "jti": os.urandom(8).hex(),
        "iat": int(time.time()),
        "iss": issuer.public_key.decode(),
        "sub": subject,
        "name": kind,
        "nats": {"type": kind, "version": 2, **claims},
    }
    signed = f"{head}.{_text(json.dumps(body).encode())}"
    return f"{signed}.{_text(issuer.sign(signed.encode()))}"


def key(prefix: int) -> Any:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


async def test_a_credentials_file_names_a_user_of_an_account(started: Any, tmp_path: Path) -> None:
    operator = key(nkeys.PREFIX_BYTE_OPERATOR)
    account, system = key(nkeys.PREFIX_BYTE_ACCOUNT), key(nkeys.PREFIX_BYTE_ACCOUNT)
    user = key(nkeys.PREFIX_BYTE_USER)
    names = ("subs", "conn", "leaf", "imports", "exports", "data", "payload")
    stored = ("mem_storage", "disk_storage", "streams", "consumer")
    limits = {**dict.fromkeys((*names, *stored), -1), "wildcards": True}
    preload = "\n".join(
        f"{name}: {jwt(operator, name, 'account', limits={**limits, **own})}"
        for name, own in (
            (account.public_key.decode(), {}),
            (system.public_key.decode(), dict.fromkeys(stored, 0)),
        )
    )
    config = tmp_path / "server.conf"
    config.write_text(
        f"operator: {jwt(operator, operator.public_key.decode(), 'operator')}\n"
        f"system_account: {system.public_key.decode()}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
    )
    server = started("-c", str(config))
    credentials = tmp_path / "ale.creds"
    user_jwt = jwt(account, user.public_key.decode(), "user", subs=-1, data=-1, payload=-1)
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    await check(NatsOptions(url=server.url, credentials=credentials))
    with pytest.raises(AleError, match="refuses this client"):
        await check(NatsOptions(url=server.url))
    with pytest.raises(AleError, match=r"credentials: there is no file .*absent\.creds"):
        await check(NatsOptions(url=server.url, credentials=tmp_path / "absent.creds"))


@pytest.mark.parametrize("back", [False, True])
async def test_a_connection_whose_server_is_gone_or_has_another_certificate_can_be_closed(
    started: Any, certificates: Path, tmp_path: Path, *, back: bool
) -> None:
    files = ("--tlscert", str(certificates / "server.pem"))
    server = started("--tls", *files, "--tlskey", str(certificates / "server.key"), scheme="tls")
    lost, tried = asyncio.Event(), asyncio.Event()

    async def is_lost() -> None:
        lost.set()

    client = await connect(
        ServerOptions(url=server.url, tls_ca=certificates / "ca.pem"), {}, on_lost=is_lost
    )

    async def note(error: Exception) -> None:
        if isinstance(error, ssl.SSLCertVerificationError):
            tried.set()

    client._error_cb = note
    server.stop()
    await asyncio.wait_for(lost.wait(), 60)
    await client.publish("subject", b"what is not sent")
    if back:
        make_certificates(tmp_path / "others")
        for name in ("server.pem", "server.key"):
            (tmp_path / "others" / name).replace(certificates / name)
        server.start()
        await asyncio.wait_for(tried.wait(), 60)
    await asyncio.wait_for(close(client), 30)
    assert client.is_closed
