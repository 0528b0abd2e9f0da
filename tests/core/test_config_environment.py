"""Variables of the environment that override keys of a config."""

from pathlib import Path
from typing import Any

import pytest

from ale._config import RunConfig, load_config
from ale._registry import Registry
from ale.errors import InputError
from ale.runs import Redactor, environment_overrides, without_overrides

BASE = "tasks: {type: list, n: 3}\nagent: {type: bench}\n"


@pytest.fixture
def load(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Any:
    def loaded(*overrides: str, text: str = BASE, **variables: str) -> RunConfig:
        (tmp_path / "c.yaml").write_text(text)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return load_config(tmp_path / "c.yaml", registry, overrides)

    return loaded


def test_a_variable_overrides_the_file_and_is_typed_as_yaml(load: Any) -> None:
    config = load(ALE_TASKS__N="7", ALE_RUN__ROLLOUTS="2", ALE_RUN__NAME="'7'")
    assert config.resolved["tasks"]["n"] == 7
    assert config.run.rollouts == 2
    assert config.run.name == "7"


def test_the_command_line_overrides_a_variable(load: Any) -> None:
    config = load("tasks.n=9", ALE_TASKS__N="7")
    assert config.resolved["tasks"]["n"] == 9
    assert config.notes == [], "what is overridden is not said"


def test_whole_sections_and_lists_can_be_given(load: Any) -> None:
    config = load(ALE_OBSERVERS="[]", ALE_EVALUATION__TASKS="{type: list, n: 1}")
    assert config.resolved["observers"] == []
    assert config.resolved["evaluation"]["tasks"]["n"] == 1


def test_a_new_type_drops_what_it_lacks_and_names_the_variable(load: Any) -> None:
    text = f"{BASE}credit: {{type: ipa, gamma: 0.5}}\n"
    with pytest.raises(InputError) as refused:
        load(text=text, ALE_CREDIT__TYPE="nothing")
    assert "ALE_CREDIT__TYPE: credit.type" in str(refused.value)


def test_its_origin_is_said_without_the_value(load: Any) -> None:
    config = load(ALE_TASKS__N="7", ALE_RUN__NAME="hidden")
    assert config.notes == ["tasks.n is set by ALE_TASKS__N", "run.name is set by ALE_RUN__NAME"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ALE_TASKS__M", "7", "ALE_TASKS__M: tasks.m: unknown option"),
        ("ALE_RUN__ROLOUTS", "7", "did you mean 'rollouts'?"),
        ("ALE_RUM__ROLLOUTS", "7", "did you mean 'run'?"),
        ("ALE_RUN__ROLLOUTS", "many", "ALE_RUN__ROLLOUTS: run.rollouts: expected"),
        ("ALE_RUN__NAME", "[", "ALE_RUN__NAME"),
        ("ALE_LLM_MAX_TOKENS", "512", "did you mean ALE_LLM__MAX_TOKENS?"),
        ("ALE_RUN_ROLLOUTS", "7", "did you mean ALE_RUN__ROLLOUTS?"),
        ("ALE_RUN", "{rollouts: 7}", "ALE_RUN__KEY"),
        ("ALE_CREDIT", "grpo", "ALE_CREDIT__KEY"),
        ("ALE_SANDBOX", "{type: local}", "ALE_SANDBOX__KEY"),
    ],
)
def test_a_mistake_names_the_variable_and_the_nearest_key(
    load: Any, name: str, value: str, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        load(**{name: value})
    assert name in str(refused.value)
    assert message in str(refused.value)


def test_variables_of_other_meaning_and_empty_ones_are_not_read(load: Any) -> None:
    others = {"ALE_STORE": "x", "ALE_SANDBOX": "a b", "ALE_RUN_DIRECTORY": "/run", "ALES__X": "1"}
    keys = {"ALE_LLM_API_KEY": "sk-12345678", "ALE_AGENT_TOKEN": "12345678"}
    assert load(**others, **keys, ALE_TASKS__N="", ALE_TASKS_N="").resolved["tasks"]["n"] == 3


def test_they_are_given_to_processes_elsewhere_as_on_a_command_line() -> None:
    environ = {"ALE_LLM__MODEL": "m", "ALE_OBSERVERS": "[]", "ALE_STORE": "x", "HOME": "/"}
    assert environment_overrides(environ) == ["llm.model=m", "observers=[]"]


def test_a_process_whose_config_has_them_does_not_get_them() -> None:
    environ = {"ALE_LLM__MODEL": "m", "ALE_OBSERVERS": "[]", "ALE_STORE": "x", "HOME": "/"}
    assert without_overrides(environ) == {"ALE_STORE": "x", "HOME": "/"}


def test_what_they_give_to_a_config_is_no_secret_but_for_a_password_in_a_url() -> None:
    redactor = Redactor(
        {
            "ALE_EXECUTOR__TLS_KEY": "/etc/ale/client.key",
            "ALE_LLM__BASE_URL": "http://ada:of-the-url@127.0.0.1",
            "ALE_LLM_API_KEY": "of-the-model",
        }
    )
    text = b"/etc/ale/client.key of-the-url of-the-model"
    assert redactor.scrub(text) == b"/etc/ale/client.key *** ***"
