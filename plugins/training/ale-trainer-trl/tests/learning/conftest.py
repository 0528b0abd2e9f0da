"""A tiny model on disk, and preferences that it does not have yet."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest

from .. import conftest

TEMPLATE = (
    "{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<call>{{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}<|end|>{{ '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ("<pad>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<call>")


def make_tokenizer() -> Any:
    """One token per byte, and one per mark."""
    return conftest.make_tokenizer(MARKS, chat_template=TEMPLATE)


def make_model(tokenizer: Any, seed: int = 0) -> Any:
    return conftest.make_model(seed, vocab=len(tokenizer), mlp=64)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `from_pretrained` takes."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    make_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


WORDS = ("apple", "river", "stone", "cloud", "paper", "green", "seven", "north", "light", "bread")


def preferences(n: int, seed: int) -> list[dict[str, Any]]:
    """Say yes, not no, whatever is asked."""
    rng = random.Random(seed)
    return [
        {
            "prompt": [{"role": "user", "content": " ".join(rng.sample(WORDS, 3)) + "?"}],
            "chosen": [{"role": "assistant", "content": f"yes {rng.choice(WORDS)}"}],
            "rejected": [{"role": "assistant", "content": f"no {rng.choice(WORDS)}"}],
        }
        for _ in range(n)
    ]


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    def write(rows: Sequence[Any], name: str = "dpo.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def lab() -> Any:
    """The makers above, for tests: modules of tests can't import each other."""
    from types import SimpleNamespace

    return SimpleNamespace(
        preferences=preferences, make_tokenizer=make_tokenizer, make_model=make_model
    )
