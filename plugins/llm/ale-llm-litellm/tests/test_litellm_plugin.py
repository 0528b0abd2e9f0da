"""What holds whether or not litellm is installed."""

import importlib.metadata
import subprocess
import sys

import pytest

from ale.errors import InputError, NotUsableError
from ale.plugin import BuildContext
from ale_llm_litellm import plugin
from ale_llm_litellm.options import LiteLLMOptions


@pytest.fixture
def no_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_listing_the_component_imports_no_litellm() -> None:
    code = (
        "import sys; from ale_llm_litellm import plugin; plugin.ale_llms(); plugin.probe(); "
        "print([m for m in ('litellm', 'openai', 'ale_openai_wire') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("no_litellm")
def test_the_probe_says_how_to_install_it() -> None:
    (component,) = plugin.ale_llms()
    probe = component.probe()
    assert not probe.usable
    assert probe.remedy == "pip install litellm"


@pytest.mark.usefixtures("no_litellm")
def test_building_without_it_says_the_same() -> None:
    (component,) = plugin.ale_llms()
    with pytest.raises(NotUsableError, match="pip install litellm"):
        component.build(LiteLLMOptions(model="openai/m"), BuildContext())


def test_an_unset_variable_is_named() -> None:
    (component,) = plugin.ale_llms()
    options = LiteLLMOptions(model="openai/m", api_key_env="NO_SUCH_KEY")
    with pytest.raises(InputError, match="NO_SUCH_KEY is not set") as caught:
        component.build(options, BuildContext(environ={}))
    assert caught.value.problems[0].path == "llm.api_key_env"


def test_a_model_without_a_provider_is_refused() -> None:
    with pytest.raises(ValueError, match="'model' needs a provider, as in openai/m"):
        LiteLLMOptions(model="m")


def test_a_config_of_openai_is_valid_here_too() -> None:
    options = LiteLLMOptions(model="m", base_url="http://127.0.0.1:1234/v1", temperature=0.2)
    assert options.provider_and_model == "openai/m"
