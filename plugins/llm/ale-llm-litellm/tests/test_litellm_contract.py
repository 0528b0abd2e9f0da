"""The contract kit, against a real server, with the real litellm.

Importing litellm takes seconds: these tests are in a session of their own, where it is installed.
"""

import logging
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from ale.errors import LLMError, ToolsUnsupportedError
from ale.plugin import BuildContext
from ale.protocols import LLM, Checkable
from ale.testing.llm import ADD, CAPITAL, SUM, Connect, ask
from ale.testing.openai import OpenAIServerContract
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
        base_url=url,
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


def keyless(url: str, **options: object) -> LLM:
    (component,) = ale_llms()
    made = LiteLLMOptions(model="m", base_url=url, retry_min_s=600.0, retry_max_s=600.0, **options)
    return component.build(made, BuildContext(environ={}))


async def test_a_local_server_needs_no_key_and_the_model_no_provider() -> None:
    with openai_server([{"text": "Hm."}]) as server:
        llm = keyless(server.url)
        await llm.complete(ask(CAPITAL))
        (request,) = server.requests()
    assert request["body"]["model"] == "m"
    assert request["headers"]["authorization"] == "Bearer none"


async def test_a_key_that_litellm_does_not_find_is_an_error_at_once() -> None:
    (component,) = ale_llms()
    llm = component.build(
        LiteLLMOptions(model="openai/m", retry_min_s=600.0, retry_max_s=600.0), BuildContext()
    )
    assert isinstance(llm, Checkable)
    started = time.perf_counter()
    with pytest.raises(LLMError, match=r"llm\.api_key_env"):
        await llm.complete(ask(CAPITAL))
    with pytest.raises(LLMError, match="set OPENAI_API_KEY"):
        await llm.check()
    assert time.perf_counter() - started < 60


async def test_a_server_that_never_answered_is_not_retried_and_is_named() -> None:
    llm = keyless("http://127.0.0.1:9/v1")
    assert isinstance(llm, Checkable)
    started = time.perf_counter()
    for request in (llm.complete(ask(CAPITAL)), llm.check()):
        with pytest.raises(LLMError, match=r"cannot connect to http://127\.0\.0\.1:9/v1"):
            await request
    assert time.perf_counter() - started < 60


async def test_a_server_that_litellm_names_says_how_it_is_started() -> None:
    (component,) = ale_llms()
    options = LiteLLMOptions(model="hosted_vllm/org/m", base_url="http://127.0.0.1:9/v1")
    llm = component.build(options, BuildContext(environ={}))
    assert isinstance(llm, Checkable)
    with pytest.raises(LLMError, match=r"start the server \(vllm serve org/m\)"):
        await llm.check()


async def test_an_unknown_model_is_named_with_those_that_the_server_has() -> None:
    models = [{"id": "qwen", "owned_by": "vllm"}]
    with openai_server({"*": {"fault": 404, "message": "no"}, "models": models}) as server:
        llm = keyless(server.url)
        assert isinstance(llm, Checkable)
        for request in (llm.complete(ask(CAPITAL)), llm.check()):
            with pytest.raises(LLMError, match=r"set llm\.model to one of: qwen"):
                await request


async def test_a_refusal_of_tools_has_its_own_error() -> None:
    with openai_server({"*": {"fault": 400, "message": "m does not support tools"}}) as server:
        with pytest.raises(ToolsUnsupportedError):
            await keyless(server.url).complete(ask(SUM, tools=(ADD,)))
        assert len(server.requests()) == 1


class TestLiteLLM(OpenAIServerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return make
