"""The options of a server, in a config and on a command line; what a refused connection says."""

import asyncio
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ale.errors import AleError, InputError
from ale_nats_client.client import close, connect
from ale_nats_client.commands import arguments, login_option, server_of
from ale_nats_client.options import ServerOptions
from ale_nats_client.testing import free_port, require_server, running_server


@click.command()
@login_option
def command(nats_login: tuple[str, ...]) -> None:
    found = server_of("tls://a:4222", nats_login, "--register")
    click.echo(f"{found.url} {found.user_env} {found.password_env} {found.tls_ca}")


def test_the_command_line_has_the_options_of_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ca.pem").touch()
    given = ["user_env=U", "password_env=P", "tls_ca=ca.pem"]
    done = CliRunner().invoke(command, [f"--nats-login={each}" for each in given])
    assert done.output == f"tls://a:4222 U P {tmp_path / 'ca.pem'}\n"


def test_a_command_line_hands_on_what_it_was_given() -> None:
    given = ("tls_ca=/a/ca.pem", "user_env=U")
    words = [f"--nats-login={each}" for each in given]
    assert arguments(server_of("tls://a:4222", given, "--register")) == words


@pytest.mark.parametrize("given", ["user=U", "user_env", "user_env=", "url=nats://b"])
def test_what_is_no_login_is_refused_with_the_names_there_are(given: str) -> None:
    with pytest.raises(InputError, match=f"--nats-login: expected KEY=VALUE, found '{given}'") as e:
        server_of("tls://a:4222", [given], "--register")
    assert "one of credentials, tls_ca, tls_certificate, tls_key, user_env" in str(e.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://a", "expected nats://HOST:PORT or tls://HOST:PORT, found 'http://a'"),
        ("nats://u:p@a", "a URL must contain no user or password"),
        ("nats://a:1,nats://u:p@b:1", "a URL must contain no user or password"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServerOptions(url=url)
    with pytest.raises(InputError, match=message):
        server_of(url, (), "--register")


def test_a_key_without_its_certificate_is_refused() -> None:
    message = "tls_key is the key of tls_certificate, which is not set"
    with pytest.raises(ValueError, match=message):
        ServerOptions(tls_key=Path("client.key"))
    with pytest.raises(InputError, match=message):
        server_of("tls://a:4222", ["tls_key=client.key"], "--register")


async def test_what_is_missing_is_named() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    with pytest.raises(AleError, match=f"can be reached at {url}: .*nats-server -js.*; or another"):
        await connect(ServerOptions(url=url), {}, hint="; or another")
    with pytest.raises(AleError, match="user_env names the variable U, which is not set"):
        await connect(ServerOptions(url=url, user_env="U"), {})
    with pytest.raises(AleError, match="there is no file absent"):
        await connect(ServerOptions(url=url, credentials=Path("absent")), {})


async def test_a_password_is_not_sent_to_a_server_without_tls() -> None:
    received = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576, "auth_required": true}\r\n')
        received.extend(await reader.read())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        options = ServerOptions(url=url, user_env="U", password_env="P")
        with pytest.raises(AleError, match=f"{url}: TLS failed: the server does not speak TLS;"):
            await connect(options, {"U": "run", "P": "secret"})
    assert received == b""


async def test_any_server_of_several_will_do(tmp_path: Path) -> None:
    require_server()
    with running_server(tmp_path) as server:
        url = f"nats://127.0.0.1:{free_port()},{server.url}"
        for _ in range(8):  # which is asked first is a matter of chance
            client = await connect(ServerOptions(url=url), {}, name="ale run one")
            assert client.is_connected
            assert client.options["name"] == "ale run one"
            await close(client)
            assert client.is_closed


async def test_a_lost_connection_is_said_and_made_again(tmp_path: Path) -> None:
    lost, back = asyncio.Event(), asyncio.Event()

    async def on_lost() -> None:
        lost.set()

    async def on_back() -> None:
        back.set()

    with running_server(tmp_path) as server:
        options = ServerOptions(url=server.url)
        client = await connect(options, {}, on_lost=on_lost, on_back=on_back)
        server.stop()
        await asyncio.wait_for(lost.wait(), 30)
        assert not back.is_set()
        await asyncio.sleep(2)  # some attempts are in vain
        server.start()
        await asyncio.wait_for(back.wait(), 30)
        await client.flush()
        await close(client)


async def test_a_server_that_says_nothing_is_not_waited_for_longer_than_was_asked() -> None:
    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(stay, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(20):
            with pytest.raises(AleError, match=f"can be reached at {url}: "):
                await connect(ServerOptions(url=url), {}, timeout_s=1.0)
