"""The config file: statements 9 to 25 and 33 of the document, by number."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.errors import InputError
from ale.plugin import Converted, Probe, Secret
from ale.runs import Registry, check_config
from ale.strict import Node, parse_yaml, read_yaml
from ale_lite.reader import KEY_VARIABLE, convert, is_lite

CONFIG = Path(__file__).resolve().parents[4] / "configs" / "local_lmstudio.yaml"


def with_docker(kind: str, name: str) -> Probe | None:
    return Probe(usable=(kind, name) == ("sandbox", "docker"), reason="it answers")


def without_docker(kind: str, name: str) -> Probe | None:
    return Probe(usable=False, reason="no engine")


def read(text: str = "", ask: Any = with_docker) -> Converted:
    root = parse_yaml(text, file="lite.yaml")
    return convert(root if root.value is not None else Node({}, root.file, root.line), ask)


def section(name: str, text: str = "", ask: Any = with_docker) -> dict[str, Any]:
    found = read(text, ask).root.get(name)
    assert found is not None
    made: dict[str, Any] = found.plain()
    return made


def problems(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(text)
    return str(caught.value)


def test_s09_the_named_config_has_every_key_of_the_document_at_its_default() -> None:
    root = read_yaml(CONFIG)
    assert {name: list(node.plain()) for name, node in (root.mapping or {}).items()} == {
        "llm": ["base_url", "api_key", "model", "temperature", "max_tokens", "timeout_s"],
        "agent": [
            *("max_steps", "max_turns", "tool_timeout_s", "time_limit_s", "context_max_tokens"),
        ],
        "sandbox": ["backend", "image", "network", "allowlist_paths"],
    }
    assert convert(root, with_docker).root.plain() == read().root.plain()


def test_s10_base_url_is_lm_studios_on_this_machine() -> None:
    assert section("llm")["base_url"] == "http://127.0.0.1:1234/v1"


def test_s11_api_key_is_lm_studios_which_is_no_secret() -> None:
    assert section("llm")["placeholder_key"] == "lm-studio"
    assert read().environ == {}


def test_s11_another_key_is_in_the_environment_and_not_in_the_config() -> None:
    found = read("llm: {api_key: sk-of-my-own}")
    assert found.environ == {KEY_VARIABLE: Secret("sk-of-my-own")}
    assert found.root.get("llm").plain()["api_key_env"] == KEY_VARIABLE  # type: ignore[union-attr]
    assert "sk-of-my-own" not in str(found.root.plain()) + repr(found)


def test_s12_model() -> None:
    assert section("llm")["model"] == "local-model-name"


def test_s13_temperature() -> None:
    assert section("llm")["temperature"] == 0.2


def test_s14_max_tokens() -> None:
    assert section("llm")["max_tokens"] == 1024


def test_s15_timeout_s() -> None:
    assert section("llm")["timeout_s"] == 120


def test_s15_a_long_timeout_is_not_cut_by_the_deadline_of_all_attempts() -> None:
    found = section("llm", "llm: {timeout_s: 3600}")
    assert found["timeout_s"] == found["deadline_s"] == 3600


def test_s16_max_steps() -> None:
    assert section("agent")["max_steps"] == 40


def test_s17_max_turns() -> None:
    assert section("agent")["max_turns"] == 80


def test_s18_tool_timeout_s() -> None:
    assert section("agent")["tool_timeout_s"] == 60


def test_s19_time_limit_s() -> None:
    assert section("agent")["time_limit_s"] == 600


def test_s20_context_max_tokens() -> None:
    assert section("agent")["context_max_tokens"] == 8000


def test_s21_backend_is_auto_or_docker_or_local() -> None:
    assert section("sandbox")["type"] == "docker"
    assert section("sandbox", ask=without_docker)["type"] == "local"
    assert section("sandbox", "sandbox: {backend: docker}", without_docker)["type"] == "docker"
    assert section("sandbox", "sandbox: {backend: local}")["type"] == "local"
    assert "one of auto, docker, local" in problems("sandbox: {backend: podman}")


def test_s22_image() -> None:
    assert section("sandbox")["image"] == "python:3.11-slim"


def test_s23_network_is_off() -> None:
    assert section("sandbox")["network"] is False
    assert section("sandbox", "sandbox: {network: true}")["network"] is True


def test_s24_allowlist_paths_are_none_and_relative_to_the_file() -> None:
    assert section("sandbox")["allowlist_paths"] == []
    given = section("sandbox", "sandbox: {allowlist_paths: [data]}")["allowlist_paths"]
    assert given == [str(Path("data").resolve())]


def test_s24_local_which_sees_the_whole_host_has_no_list() -> None:
    found = problems("sandbox:\n  backend: local\n  allowlist_paths: [data]\n")
    assert "lite.yaml:3: sandbox.allowlist_paths: the backend local sees the whole host" in found


def test_s25_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    (tmp_path / "t.yaml").write_text(
        "id: t\ngoal: Do it.\nsuccess_criteria: [{type: command_exit_code, command: 'true'}]\n"
    )
    tasks = ("tasks.type=tbp", f"tasks.path='{tmp_path}/t.yaml'", "sandbox.type=local")
    registry = Registry.installed()
    empty = check_config(tmp_path / "empty.yaml", registry, tasks, "ale-lite")
    named = check_config(CONFIG, registry, tasks)
    assert empty.episodes == 1
    assert empty.config == named.config
    assert named.config["llm"]["type"] == "ale-llm-openai/openai"


def test_s25_a_section_with_nothing_in_it_is_all_defaults() -> None:
    assert read("agent:\n").root.plain() == read().root.plain()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llm:\n  modle: x\n", "lite.yaml:2: llm.modle: unknown option"),
        ("lm: {}\n", "lite.yaml:1: lm: unknown option"),
        ("llm:\n  max_tokens: '9'\n", "lite.yaml:2: llm.max_tokens: expected a whole number"),
        ("agent: {max_steps: 0}\n", "lite.yaml:1: agent.max_steps: expected a value >= 1"),
        ("sandbox: {network: off}\n", "lite.yaml:1: sandbox.network: expected true or false"),
        ("sandbox: {allowlist_paths: /srv}\n", "sandbox.allowlist_paths: expected a list"),
        ("llm: {base_url: localhost}\n", "lite.yaml:1: llm.base_url: "),
        ("agent: 3\n", "lite.yaml:1: agent: expected a mapping"),
    ],
)
def test_s25_an_unknown_key_or_a_wrong_value_names_its_path(text: str, message: str) -> None:
    assert message in problems(text)


def test_s25_every_problem_is_told_at_once() -> None:
    message = problems("llm: {modle: x}\nagent: {max_turns: many}\nsandbox: {bakend: auto}\n")
    assert all(path in message for path in ("llm.modle", "agent.max_turns", "sandbox.bakend"))
    assert message.count("lite.yaml:") == 3
    assert "did you mean 'model'?" in message
    assert "did you mean 'backend'?" in message


def test_s33_servers_differ_in_base_url_alone() -> None:
    ports = {"lmstudio": 1234, "vllm": 8000, "ollama": 11434}
    found = []
    for port in ports.values():
        llm = section("llm", f"llm: {{base_url: 'http://127.0.0.1:{port}/v1'}}")
        assert llm.pop("base_url") == f"http://127.0.0.1:{port}/v1"
        found.append(llm)
    assert found[0] == found[1] == found[2]


def test_a_later_problem_keeps_the_line_of_what_was_written() -> None:
    tree = read("agent:\n  max_steps: 7\n").root
    steps = tree.get("agent").get("max_steps")  # type: ignore[union-attr]
    assert steps is not None
    assert (steps.file, steps.line) == ("lite.yaml", 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("llm: {api_key: lm-studio}", True),
        ("sandbox: {backend: auto}\nagent: {max_steps: 3}", True),
        ("agent: {max_steps: 3}", False),
        ("llm: {api_key: x, type: openai}", False),
        ("llm: {api_key: x}\ntasks: {type: tbp}", False),
    ],
)
def test_a_file_is_recognised_by_keys_that_no_other_config_has(text: str, expected: bool) -> None:
    assert is_lite(parse_yaml(text, file="c.yaml")) is expected


def test_a_probe_that_fails_is_no_engine() -> None:
    unusable = evolve(with_docker("sandbox", "docker"), usable=False)
    assert section("sandbox", ask=lambda kind, name: unusable)["type"] == "local"
    assert section("sandbox", ask=lambda kind, name: None)["type"] == "local"
