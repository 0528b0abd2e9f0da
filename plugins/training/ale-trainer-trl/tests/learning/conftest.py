"""A tiny model on disk, and preferences that it does not have yet."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = (
    "{%- for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<call>{{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}<|end|>{{ '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ("<pad>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<call>")


def make_tokenizer() -> Any:
    """One token per byte, and one per mark."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in MARKS])
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=core, pad_token="<pad>", eos_token="<|end|>", chat_template=TEMPLATE
    )


def make_model(tokenizer: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            # Large enough that adapters can move what it says.
            initializer_range=0.15,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


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
