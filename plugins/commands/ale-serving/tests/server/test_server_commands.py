"""`ale engines` starts, lists and stops servers of this machine."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ale.errors import AleError, InputError
from ale.testing.waiting import wait_for
from ale_nats_client.options import ServerOptions
from ale_nats_client.testing import running_server
from ale_servers.client import Connections, HTTPServer
from ale_servers.records import Entry, SampleRequest
from ale_servers.registry import FolderRegistry
from ale_serving.server import running
from ale_serving.server.commands import engines
from ale_serving.server.places import Place
from ale_serving.server.running import started, stop

PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from ale_nats_client.options import ServerOptions
from ale_servers.places import registry_at
from ale_servers.registry import own_entry, registered
from ale_servers.testing.bigram import BigramServer
from ale_servers.testing.serving import serving

async def main(place, name, served):
    registry = registry_at(ServerOptions(url=place) if "://" in place else Path(place), os.environ)
    if served == "nonsense":
        print("llm.type: no llm 'nonsense'")
        raise SystemExit(2)
    async with serving(BigramServer()) as url:
        async with registered(registry, own_entry(url, name)):
            ended = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
            asyncio.get_running_loop().add_reader(0, ended.set)
            await ended.wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A registry whose servers are a program in the place of `ale serve`, another package."""

    def command(served: Sequence[str], register: Sequence[str], name: str) -> Sequence[str]:
        assert register[0] == "--register"
        return (sys.executable, "-c", PROGRAM, register[1], name, *served)

    monkeypatch.setattr(running, "serve_command", command)
    yield tmp_path / "servers"
    place = Place.of(tmp_path / "servers")
    for name in started(place):
        stop(place, name)


def ale(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(engines, [*arguments, "--folder", str(folder)])


def entries(folder: Path) -> Sequence[Entry]:
    return FolderRegistry(folder).entries()


def test_servers_are_started_listed_and_stopped(folder: Path) -> None:
    assert "There is no server" in ale(folder, "list").output
    made = ale(folder, "start", "policy", "--name", "one", "--count", "2")
    assert made.exit_code == 0, made.output
    assert [line.split()[0] for line in made.output.splitlines()] == ["one-1", "one-2"]
    head, first, second = ale(folder, "list").output.splitlines()
    assert head.split() == ["name", "address", "model", "version", "load", "since"]
    assert first.split()[:3] == ["one-1", entries(folder)[0].url, "bigrams"]
    assert second.split()[3] == "0"
    assert "0 of 64" in second
    assert ale(folder, "stop", "one-1").output == "one-1 is stopped\n"
    assert [entry.name for entry in entries(folder)] == ["one-2"]
    assert ale(folder, "stop", "--all").output == "one-2 is stopped\n"
    assert entries(folder) == []
    assert started(Place.of(folder)) == []


def test_all_are_stopped_but_those_that_another_session_is_starting(
    folder: Path, tmp_path: Path
) -> None:
    assert ale(folder, "start", "policy", "--name", "one").exit_code == 0
    place = Place.of(folder)
    keeper, starter = (subprocess.Popen(["sleep", "300"]) for _ in range(2))
    try:
        pids = {each: running._born(each.pid) for each in (keeper, starter)}
        record = running.Keeping(
            name="two",
            pid=keeper.pid,
            born=pids[keeper],
            host=socket.gethostname(),
            starter=starter.pid,
            starter_born=pids[starter],
        )
        running._write(place, record)
        said = ale(folder, "stop", "--all").output
        assert "two is being started by another command" in said
        assert "one is stopped" in said
        assert started(place) == ["two"]
        starter.kill()  # nobody waits for it any more
        starter.wait()
        stopping = threading.Thread(target=keeper.wait)
        stopping.start()
        assert ale(folder, "stop", "--all").output == "two is stopped\n"
        stopping.join()
    finally:
        for each in (keeper, starter):
            each.kill()
            each.wait()


def test_a_killed_server_is_started_again(folder: Path) -> None:
    assert ale(folder, "start", "policy").exit_code == 0
    (before,) = entries(folder)
    assert before.name == "server-1"
    os.kill(before.pid, signal.SIGKILL)
    now = wait_for(lambda: [each for each in entries(folder) if each != before])
    log = (folder / "server-1.log").read_text()
    assert "the server ended with status -9; started again in 0.5 s" in log

    async def sampled() -> int:
        connections = Connections()
        asked = SampleRequest(id="a", prompt_ids=(1,), max_tokens=3)
        answer = await HTTPServer(now[0], connections).sample(asked)
        await connections.aclose()
        return len(answer.ids)

    assert asyncio.run(sampled()) == 3


def test_a_server_that_can_not_start_is_stopped_and_its_log_is_shown(folder: Path) -> None:
    failed = ale(folder, "start", "nonsense")
    assert isinstance(failed.exception, AleError)
    assert "no llm 'nonsense'" in str(failed.exception)
    assert "started again in" not in str(failed.exception)
    log = (folder / "server-1.log").read_text().splitlines()
    assert log[1:] == ["the server ended with status 2; it is not started again"]
    assert started(Place.of(folder)) == []


def test_a_name_in_use_is_refused(folder: Path) -> None:
    FolderRegistry(folder).add(Entry(url="http://127.0.0.1:9", name="one"))
    failed = ale(folder, "start", "policy", "--name", "one")
    assert isinstance(failed.exception, InputError)
    assert "there is a server 'one'" in str(failed.exception)


def test_an_unknown_name_is_refused_with_the_nearest(folder: Path) -> None:
    assert ale(folder, "start", "policy", "--name", "sampler").exit_code == 0
    failed = ale(folder, "stop", "samplr")
    assert "did you mean 'sampler'?" in str(failed.exception)


def test_a_server_that_does_not_answer_is_listed_with_the_reason(folder: Path) -> None:
    FolderRegistry(folder).add(Entry(url="http://127.0.0.1:9", name="gone"))
    assert "can't be reached" in ale(folder, "list").output


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[str]:
    with running_server(tmp_path / "nats") as made:
        yield f"{made.url}/sampling"


def test_servers_are_found_in_nats_from_any_machine(folder: Path, bucket: str) -> None:
    assert ale(folder, "list", "--nats", bucket).output == f"There is no server in {bucket}.\n"
    made = ale(folder, "start", "policy", "--name", "one", "--nats", bucket)
    assert made.exit_code == 0, made.output
    elsewhere = folder.with_name("elsewhere")
    _, line = ale(elsewhere, "list", "--nats", bucket).output.splitlines()
    assert line.split()[:3] == [*made.output.split(), "bigrams"]
    assert entries(folder) == []  # the folder has its log and process
    assert ale(folder, "stop", "one").output == "one is stopped\n"
    assert ale(elsewhere, "list", "--nats", bucket).output == f"There is no server in {bucket}.\n"


def test_a_registry_in_nats_that_is_away_is_named(folder: Path) -> None:
    failed = ale(folder, "list", "--nats", "nats://127.0.0.1:9/sampling")
    assert isinstance(failed.exception, AleError)
    assert "the registry nats://127.0.0.1:9/sampling can't be reached" in str(failed.exception)
    lonely = ale(folder, "list", "--nats-login", "user_env=USER")
    assert "needs --nats nats://HOST:PORT/BUCKET" in lonely.output


def test_what_enters_a_server_into_nats_is_what_the_command_was_given(tmp_path: Path) -> None:
    given = ServerOptions(url="tls://a:4222/b", user_env="NAME", tls_ca=tmp_path / "ca.pem")
    assert Place.of(tmp_path, given).register == [
        *("--register", "tls://a:4222/b"),
        *(f"--nats-login=tls_ca={tmp_path / 'ca.pem'}", "--nats-login=user_env=NAME"),
    ]
