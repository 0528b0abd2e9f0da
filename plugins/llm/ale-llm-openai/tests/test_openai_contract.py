"""The contract kit, once whole, once streamed and with token ids."""

import pytest

from ale.plugin import BuildContext
from ale.protocols import LLM
from ale.testing.llm import Connect
from ale.testing.openai import OpenAIServerContract
from ale_llm_openai.options import OpenAIOptions
from ale_llm_openai.plugin import ale_llms


def connect_with(**options: object) -> Connect:
    component = ale_llms()[0]

    def connect(url: str, key: str) -> LLM:
        made = OpenAIOptions(
            base_url=url,
            model="m",
            api_key_env="KEY",
            timeout_s=3.0,
            max_retries=3,
            retry_min_s=0.01,
            retry_max_s=0.02,
            **options,
        )
        return component.build(made, BuildContext(environ={"KEY": key}))

    return connect


class TestWhole(OpenAIServerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return connect_with()


class TestStreamedWithTokens(OpenAIServerContract):
    @pytest.fixture
    def connect(self) -> Connect:
        return connect_with(stream=True, return_token_ids=True, logprobs_mode="processed")
