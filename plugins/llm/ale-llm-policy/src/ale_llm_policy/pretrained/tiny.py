"""The tiny policy: a small causal transformer and its tokenizer, made from a seed in a second."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ale.errors import InputError
from ale.strict import read_text
from ale_llm_policy.options import TinyShape

ROLES = ("system", "user", "assistant", "tool")
PAD, END, TOOLS = "<pad>", "<|end|>", "<|tools|>"
MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_CALL_FORMAT = (
    '{"name": "shell", "arguments": {"command": "ls -la"}}',
    '{"name": "read_file", "arguments": {"path": "a.txt"}}',
    '{"name": "write_file", "arguments": {"path": "a.txt", "content": "text"}}',
    '{"name": "edit_file", "arguments": {"path": "a.txt", "old_text": "a", "new_text": "b"}}',
    '{"name": "finish", "arguments": {"summary": "Done."}}',
)
"""What the vocabulary is learned from besides the corpus: tool calls, which every task needs."""


def make_model(shape: TinyShape, *, seed: int, pad_id: int, end_id: int) -> Any:
    """Qwen3's classes at this size, with weights that depend on the seed alone.

    RoPE, grouped-query attention, query and key norms, tied embeddings. Matrices are normal with
    variance 1 / fan-in, those that write into the residual stream smaller by sqrt(2 * layers)
    (GPT-2's rule); embeddings have standard deviation 0.02, so that the first distribution is
    close to uniform.
    """
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.mlp,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=pad_id,
        eos_token_id=end_id,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):  # the constructor draws from the global generator
        model: Any = Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            _initialise(name, weight, generator, residual=1 / math.sqrt(2 * shape.layers))
    model.eval()
    return model


def _initialise(
    name: str, weight: torch.Tensor, generator: torch.Generator, *, residual: float
) -> None:
    if weight.ndim == 1:
        weight.fill_(1.0)
        return
    deviation = 0.02 if "embed" in name else 1 / math.sqrt(weight.shape[1])
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        deviation *= residual
    weight.copy_(torch.randn(weight.shape, generator=generator) * deviation)


def make_tokenizer(
    corpus: Path | Iterable[str] | None, *, vocabulary: int, whole: Iterable[str] = ()
) -> Any:
    """A byte-level BPE tokenizer learned from a text; it can encode every byte sequence.

    Args:
        corpus: a UTF-8 file, or texts; None learns the format of tool calls alone.
        vocabulary: most tokens that it may have, special tokens included.
        whole: texts that become one token each, such as the beginning of a call.

    Raises:
        InputError: the corpus can't be read, or the vocabulary is too small for single bytes.
    """
    special = [PAD, END, TOOLS, *(f"<|{role}|>" for role in ROLES), *MARKS]
    token_bytes = list(dict.fromkeys(whole))
    least = 256 + len(special) + len(token_bytes)
    if vocabulary < least:
        raise InputError.of(
            f"a vocabulary of {vocabulary} is too small",
            path="llm.tiny.vocabulary",
            expected=f"at least {least}: one for each byte, special token and whole text",
        )
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(token_bytes),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_lines(corpus), trainer)
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in token_bytes])
    template = Path(__file__).with_name("tiny.jinja").read_text("utf-8")
    make: Any = PreTrainedTokenizerFast
    return make(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        chat_template=template.rstrip("\n"),
        clean_up_tokenization_spaces=False,
    )


def _lines(corpus: Path | Iterable[str] | None) -> Iterator[str]:
    yield from _CALL_FORMAT
    if isinstance(corpus, Path):
        yield from read_text(corpus, option="llm.tiny.corpus").splitlines(keepends=True)
    elif corpus is not None:
        yield from corpus


def make_tiny(
    corpus: Path | Iterable[str] | None,
    shape: TinyShape,
    *,
    seed: int,
    whole: Iterable[str] = (),
) -> tuple[Any, Any]:
    """Model and tokenizer. The same seed, shape and text give the same bytes everywhere.

    Raises:
        InputError: as for `make_tokenizer`.
    """
    tokenizer = make_tokenizer(corpus, vocabulary=shape.vocabulary, whole=whole)
    end_id, pad_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    return make_model(shape, seed=seed, pad_id=pad_id, end_id=end_id), tokenizer
