"""A tiny model in this process, and credited episodes of exact tokens."""

import gc
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ale.types import Batch
from ale_training.testing import InProcessLLM, TokenEpisode, TokenTurn, batch_of, credited


def make_tokenizer(marks: Sequence[str] = ("<pad>", "<end>"), **more: Any) -> Any:
    """One token per byte, then one per mark: to pad with, to end with, and others."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in marks])
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=core, pad_token=marks[0], eos_token=marks[1], **more)


def make_model(seed: int = 0, *, vocab: int = 258, mlp: int = 48) -> Any:
    """A model for a tokenizer of `make_tokenizer`, large enough that adapters can move it."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=mlp,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.15,
        tie_word_embeddings=True,
        pad_token_id=256,
        eos_token_id=257,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config).eval()


def in_process_llm(seed: int = 0, **sampling: float) -> InProcessLLM:
    return InProcessLLM(make_model(seed), make_tokenizer(), **sampling)


def contrast(step: int = 0) -> Batch:
    """Two tasks of three episodes of two turns, the first of which succeeds."""
    groups = []
    for task in (0, 1):
        prompt = [1, 2, 3 + task]
        episodes = []
        for i in range(3):
            first = [20 + i, 21 + task]
            second_prompt = [*prompt, *first, 9, 9]
            reward = 1.0 if i == 0 else 0.0
            episodes.append(
                TokenEpisode(
                    turns=[
                        TokenTurn(prompt=prompt, output=first),
                        TokenTurn(prompt=second_prompt, output=[40 + i, 41, 257]),
                    ],
                    reward=reward,
                    weights=[0.5 * (reward - 0.3), reward - 0.3],
                )
            )
        groups.append(credited(*episodes, task=f"t{task}"))
    return batch_of(*groups, step=step)


@pytest.fixture(scope="session", autouse=True)
def without_collecting_libraries() -> None:
    """Accelerate collects garbage before each training, and TRL alone is a million objects."""
    import ale_trainer_trl.learning.learner  # noqa: F401

    gc.freeze()


@pytest.fixture
def lab() -> Any:
    """The makers above, for tests: modules of tests can't import each other."""
    return SimpleNamespace(
        TokenEpisode=TokenEpisode,
        TokenTurn=TokenTurn,
        batch_of=batch_of,
        contrast=contrast,
        credited=credited,
        llm=in_process_llm,
        make_model=make_model,
        make_tokenizer=make_tokenizer,
    )
