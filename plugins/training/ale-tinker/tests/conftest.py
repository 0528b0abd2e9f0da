"""A service at loopback, and a model that samples there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import BuildContext
from ale_tinker.model import TinkerLLM, build
from ale_tinker.options import ModelOptions
from ale_tinker.testing import KEY, LoopbackService, loopback, write_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tokenizer over bytes."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return folder


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackService]:
    """A fresh service."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    with loopback() as started:
        yield started


@pytest.fixture
def make_llm(service: LoopbackService, tokenizer: Path) -> Callable[..., TinkerLLM]:
    """Builds a model at the service, with other options where given."""

    def make(key: str | None = KEY, **options: Any) -> TinkerLLM:
        given: dict[str, Any] = {
            "model": "base",
            "tokenizer": tokenizer,
            "chat_template": "chatml",
            "base_url": service.url,
            "max_tokens": 16,
            **options,
        }
        environ = {} if key is None else {"TINKER_API_KEY": key}
        return build(ModelOptions(**given), BuildContext(environ=environ))

    return make
