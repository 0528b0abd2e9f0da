"""What the plugin registrations, and what it refuses before anything is asked."""

import importlib.metadata
import subprocess
import sys

import attrs
import pytest

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.testing.openai_server import openai_server
from ale_llm_openai import plugin
from ale_llm_openai.client import OpenAILLM
from ale_llm_openai.options import OllamaOptions, OpenAIOptions


def test_the_presets_differ_in_where_they_look_alone() -> None:
    made = {c.name: c.options(model="m") for c in plugin.ale_llms()}
    assert {name: options.base_url for name, options in made.items()} == {
        "openai": "https://api.openai.com/v1",
        "lmstudio": "http://127.0.0.1:1234/v1",
        "vllm": "http://127.0.0.1:8000/v1",
        "sglang": "http://127.0.0.1:30000/v1",
        "ollama": "http://127.0.0.1:11434/v1",
        "semantic-router": "http://127.0.0.1:8801/v1",
    }
    built = [c.build(made[c.name], BuildContext()) for c in plugin.ale_llms()]
    assert {type(each) for each in built} == {OpenAILLM}


def test_openais_own_server_gets_the_key_that_its_users_export_and_no_other_does() -> None:
    context = BuildContext(environ={"OPENAI_API_KEY": "sk-own"})
    build = plugin.ale_llms()[0].build
    assert build(OpenAIOptions(model="m"), context)._client.api_key == "sk-own"
    for url in ("http://127.0.0.1:9/v1", "https://api.openai.com.example.org/v1"):
        elsewhere = build(OpenAIOptions(model="m", base_url=url), context)
        assert elsewhere._client.api_key == "none"
    assert build(OpenAIOptions(model="m"), BuildContext())._client.api_key == "none"


def test_listing_the_components_imports_no_sdk() -> None:
    code = (
        "import sys; from ale_llm_openai import plugin; plugin.ale_llms(); plugin.probe(); "
        "print([m for m in ('openai', 'httpx', 'httpx2', 'ale_openai_wire') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_probe_tells_the_version() -> None:
    probe = plugin.probe()
    assert probe.usable
    assert probe.facts["openai"] == importlib.metadata.version("openai")


def test_a_preset_is_usable_only_where_its_server_answers() -> None:
    script = {"*": {"text": "Hm."}, "models": [{"id": "tiny"}, {"id": "large"}]}
    with openai_server(script) as server:
        url = server.url
        found = plugin._probe_at(url, "LM Studio")
        assert (found.usable, found.reason) == (True, f"{url} answers")
        assert found.facts["models"] == "tiny, large"
    found = plugin._probe_at(url, "LM Studio")
    assert (found.usable, found.reason) == (False, f"nothing answers at {url}")
    assert found.remedy == "start LM Studio, or set llm.base_url"


def test_the_presets_probe_the_default_addresses_of_their_options() -> None:
    for component in plugin.ale_llms()[1:]:
        default = attrs.fields_dict(component.options)["base_url"].default
        assert component.probe.args[0] == default, component.name


def test_without_the_sdk_the_probe_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert not plugin.probe().usable
    assert plugin.probe().remedy == "pip install 'openai>=1.55.3,<4'"


@pytest.mark.parametrize("environ", [{}, {"LLM_KEY": ""}, {"LLM_KEY": "  "}])
def test_a_named_variable_that_is_not_set_is_an_error_at_build(environ: dict[str, str]) -> None:
    options = OpenAIOptions(model="m", api_key_env="LLM_KEY")
    with pytest.raises(InputError, match="LLM_KEY is not set") as caught:
        plugin.ale_llms()[0].build(options, BuildContext(environ=environ))
    assert caught.value.problems[0].path == "llm.api_key_env"


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"base_url": "127.0.0.1:8000"}, "base_url"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_retries": -1}, "max_retries"),
        ({"retry_min_s": 9, "retry_max_s": 8}, "retry_max_s"),
        ({"return_token_ids": True}, "temperature: 1 and top_p: 1"),
        ({"return_token_ids": True, "temperature": 0.7, "top_p": 1}, "temperature: 1"),
        (
            {
                "return_token_ids": True,
                "temperature": 1,
                "top_p": 1,
                "extra_body": {"min_p": 0.1},
            },
            "no field in extra_body",
        ),
        ({"placeholder_key": "clé"}, "placeholder_key"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        OpenAIOptions(model="m", **wrong)


@pytest.mark.parametrize("field", ["num_ctx", "options", "keep_alive", "think"])
def test_what_ollama_would_ignore_is_refused_and_said_how_to_set(field: str) -> None:
    with pytest.raises(ValueError, match=f"takes no {field} and would ignore it; (set|give) "):
        OllamaOptions(model="m", extra_body={field: 1})
    assert OpenAIOptions(model="m", extra_body={field: 1}), "other servers may take it"


def test_token_ids_are_promised_exactly_where_they_are_asked_for() -> None:
    build = plugin.ale_llms()[0].build
    plain = build(OpenAIOptions(model="m"), BuildContext())
    assert not plain.capabilities.token_ids
    asked = OpenAIOptions(model="m", return_token_ids=True, temperature=1, top_p=1)
    assert build(asked, BuildContext()).capabilities.token_ids
