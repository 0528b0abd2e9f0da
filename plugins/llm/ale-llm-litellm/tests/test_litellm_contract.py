"""The contract kit, against a real server, with the real litellm.

Importing litellm takes seconds: these tests are in a session of their own, where it is installed.
"""

import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ale.errors import LLMError
from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.llm import CAPITAL, Connect, LLMServerContract, ask
from ale.testing.openai_server import openai_server
from ale_llm_litellm.options import LiteLLMOptions
from ale_llm_litellm.plugin import ale_llms

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed"),
    # litellm makes the request's coroutine in a thread; a cancellation before it is awaited leaves
    # it behind, with nothing sent.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]


def make(url: str, key: str, **options: object) -> LLM:
    (component,) = ale_llms()
    made = LiteLLMOptions(
        model="openai/m",
        api_base=url,
        api_key_env="KEY",
        **{
            "timeout_s": 1.0,
            "max_retries": 3,
            "retry_min_s": 0.01,
            "retry_max_s": 0.02,
            **options,
        },
    )
    return component.build(made, BuildContext(environ={"KEY": key}))


async def test_nothing_is_printed_or_logged_with_the_key(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with openai_server({"*": {"fault": 401, "message": "bad key sk-very-secret"}}) as server:
        llm = make(server.url, "sk-very-secret")
        with (
            caplog.at_level(logging.INFO),
            pytest.raises(LLMError, match="the server refused the key in KEY"),
        ):
            await llm.complete(ask(CAPITAL))
        await llm.aclose()
    assert "sk-very-secret" not in caplog.text
    assert capfd.readouterr() == ("", "")


async def test_without_retries_the_request_is_made_once() -> None:
    with openai_server({"*": {"fault": 500}}) as server:
        llm = make(server.url, "k", max_retries=0)
        with pytest.raises(LLMError):
            await llm.complete(ask(CAPITAL))
        assert len(server.requests()) == 1


async def test_extra_arguments_and_a_seed_arrive() -> None:
    with openai_server([{"text": "Hm."}]) as server:
        llm = make(server.url, "k", extra={"presence_penalty": 0.5})
        await llm.complete(ask(CAPITAL, seed=3))
        (request,) = server.requests()
    assert request["body"]["presence_penalty"] == 0.5
    assert 0 <= request["body"]["seed"] < 2**31


def test_the_import_reads_no_env_file_and_leaves_the_environment_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_ENV_FILE=1\n")
    code = (
        "import os; before = dict(os.environ); from ale_llm_litellm.quiet import load; "
        "litellm = load(); print(dict(os.environ) == before, len(litellm.model_cost) > 100)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr.strip()) == ("True True", "")


class TestLiteLLM(LLMServerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return make
