"""`ale serve` as a command: problems are reported before it listens."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ale.errors import AleError, InputError
from ale.plugin import Component, hookimpl
from ale.runs import Registry
from ale.testing.fakes import FakeLLM
from ale_nats_client.options import ServerOptions
from ale_servers.records import Entry
from ale_servers.registry import FolderRegistry
from ale_servers.testing.bigram import BigramServer
from ale_serving.serve import running as serving
from ale_serving.serve.commands import serve
from ale_serving.serve.running import Endpoint, chosen, run


class Sampler(FakeLLM):
    """A model with an inference server."""

    def __init__(self) -> None:
        super().__init__([])
        self.server = BigramServer()


class Plugin:
    """Offers the model ``fake``, and ``sampler``, which samples by token ids."""

    @hookimpl
    def ale_llms(self) -> list[Component[None, Any]]:
        return [
            Component("fake", None, lambda o, c: FakeLLM([]), summary="Says nothing."),
            Component("sampler", None, lambda o, c: Sampler(), summary="Samples."),
        ]


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.add(Plugin(), "ale-fake")
    return made


def refused(registry: Registry, llm: str, **place: Any) -> str:
    where = Endpoint(host="127.0.0.1", port=0, **place)
    with pytest.raises(InputError) as caught:
        run(chosen(llm, None), registry, where, say=print)
    return str(caught.value)


def test_an_unknown_model_names_what_is_installed(registry: Registry) -> None:
    assert "no llm 'fale'; installed: fake, sampler" in refused(registry, "fale")


def test_an_unknown_option_is_named(registry: Registry) -> None:
    assert "llm.size: unknown option" in refused(registry, "fake:size=3")


def test_a_key_that_is_not_set_is_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVE_KEY", raising=False)
    message = refused(registry, "fake", api_key_env="SERVE_KEY")
    assert "the environment variable SERVE_KEY is not set" in message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "name.example"])
def test_beyond_loopback_a_key_is_needed(registry: Registry, host: str) -> None:
    where = Endpoint(host=host, port=0)
    with pytest.raises(InputError, match=r"(?s)others than this machine.*--api-key-env VARIABLE"):
        run(chosen("fake", None), registry, where, say=print)


def test_a_config_gives_its_section_llm(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("agent: {type: iflow}\nllm: {type: fake}\n")
    assert chosen(None, tmp_path / "c.yaml").plain() == {"type": "fake"}


def test_a_config_has_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "below.yaml").write_text("llm: {type: fake, stop: [x], model: m}\n")
    (tmp_path / "c.yaml").write_text("extends: below.yaml\nllm: {type: fake, model: other}\n")
    section = chosen(None, tmp_path / "c.yaml")
    assert section.plain() == {"type": "fake", "stop": ["x"], "model": "other"}


def test_a_config_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("agent: {type: iflow}\n")
    with pytest.raises(InputError, match="section 'llm' is missing"):
        chosen(None, tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text("llm: fake\n")
    with pytest.raises(InputError, match=r"c.yaml:1: llm: expected a mapping, found the text"):
        chosen(None, tmp_path / "c.yaml")


def test_options_of_nats_need_a_registry_there(registry: Registry, tmp_path: Path) -> None:
    given = ["fake", "--register", str(tmp_path), "--nats-login", "user_env=U"]
    done = CliRunner().invoke(serve, given, obj=registry)
    assert done.exit_code == 2
    assert "needs --register nats://HOST:PORT/BUCKET" in done.output
    done = CliRunner().invoke(serve, ["fake", "--register", "http://a"], obj=registry)
    assert isinstance(done.exception, InputError)
    assert "expected nats://HOST:PORT" in str(done.exception)


def test_a_model_that_no_run_could_sample_by_ids_is_not_registered(
    registry: Registry, tmp_path: Path
) -> None:
    message = refused(registry, "fake", register=tmp_path)
    assert "fake does not sample by token ids" in message


def test_the_name_of_a_running_server_of_this_machine_is_refused(
    registry: Registry, tmp_path: Path
) -> None:
    running = Entry(url="http://x", name="one", host=socket.gethostname(), pid=os.getppid())
    FolderRegistry(tmp_path).add(running)
    message = refused(registry, "sampler", register=tmp_path, register_as="one")
    assert "--register-as: the server at http://x has the name 'one'" in message


def test_the_name_of_a_running_server_is_refused_in_nats_too(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Entry(url="http://x", name="one", host=socket.gethostname(), pid=os.getppid())
    there = FolderRegistry(tmp_path)
    there.add(running)
    monkeypatch.setattr(serving, "registry_at", lambda place, environ: there)
    at = ServerOptions(url="nats://127.0.0.1:9/b")
    message = refused(registry, "sampler", register=at, register_as="one")
    assert "--register-as: the server at http://x has the name 'one'" in message


def test_a_registry_that_can_not_be_reached_is_named(registry: Registry) -> None:
    at = ServerOptions(url="nats://127.0.0.1:9/b")
    where = Endpoint(host="127.0.0.1", port=0, register=at)
    with pytest.raises(AleError, match=r"the registry nats://127\.0\.0\.1:9/b can't be reached"):
        run(chosen("sampler", None), registry, where, say=print)


def test_a_file_in_place_of_a_model_is_a_mistake_that_is_named(
    registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "my.yaml").write_text("llm: {type: fake}")
    done = CliRunner().invoke(serve, [str(tmp_path / "my.yaml")], obj=registry)
    assert done.exit_code == 2
    assert f"did you mean --config {tmp_path / 'my.yaml'}?" in done.output
