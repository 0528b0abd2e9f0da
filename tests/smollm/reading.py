"""A GGUF file's logits, computed by this file alone.

Blocks are turned into numbers by the formulas of ggml, weights are used in the order that the file
has them in, and rotary embeddings turn neighbouring pairs, as llama.cpp does it. transformers takes
another way: it reorders queries and keys, and turns the two halves of a head. Only the places of
the tensors in the file are read by the package `gguf`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

Floats = NDArray[np.float32]
BLOCK = 32
"""Numbers in a block, which share a scale."""


def numbers(tensor: Any) -> Floats:
    """A tensor of the file as a float32 matrix or vector; F32, Q8_0 and Q4_1 are read.

    Raises:
        ValueError: it is of another type.
    """
    shape = tuple(int(n) for n in reversed(tensor.shape))
    raw = np.ascontiguousarray(tensor.data)
    kind = tensor.tensor_type.name
    if kind == "F32":
        return raw.reshape(shape).astype(np.float32)
    raw = raw.view(np.uint8)
    if kind == "Q8_0":
        blocks = raw.reshape(-1, 2 + BLOCK)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return (scale * blocks[:, 2:].view(np.int8)).reshape(shape)
    if kind == "Q4_1":
        blocks = raw.reshape(-1, 4 + BLOCK // 2)
        scale, least = blocks[:, :4].copy().view(np.float16).astype(np.float32).T[..., None]
        nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        return (scale * nibbles + least).reshape(shape)
    raise ValueError(f"{tensor.name} is of the type {kind}; F32, Q8_0 and Q4_1 are read")


def logits_of(file: Path, ids: list[int]) -> Floats:
    """Logits after every one of these ids, ``[n, vocabulary]``, of a file of the kind llama."""
    reader = GGUFReader(str(file))
    fields = {name: field.contents() for name, field in reader.fields.items() if "llama" in name}
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def weight(name: str) -> Floats:
        return numbers(tensors[f"{name}.weight"])

    eps = float(fields["llama.attention.layer_norm_rms_epsilon"])
    heads = int(fields["llama.attention.head_count"])
    base = float(fields["llama.rope.freq_base"])
    embeddings = weight("token_embd")
    x = embeddings[ids]
    for layer in range(int(fields["llama.block_count"])):
        name = f"blk.{layer}"
        h = _norm(x, weight(f"{name}.attn_norm"), eps)
        q, k, v = (h @ weight(f"{name}.attn_{part}").T for part in "qkv")
        x = x + _attention(q, k, v, heads, base) @ weight(f"{name}.attn_output").T
        h = _norm(x, weight(f"{name}.ffn_norm"), eps)
        gate = h @ weight(f"{name}.ffn_gate").T
        inner = gate / (1 + np.exp(-gate)) * (h @ weight(f"{name}.ffn_up").T)
        x = x + inner @ weight(f"{name}.ffn_down").T
    out = weight("output") if "output.weight" in tensors else embeddings
    logits: Floats = _norm(x, weight("output_norm"), eps) @ out.T
    return logits


def _norm(x: Floats, weight: Floats, eps: float) -> Floats:
    scaled: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    return scaled


def _attention(q: Floats, k: Floats, v: Floats, heads: int, base: float) -> Floats:
    """Causal attention with grouped queries, ``[n, width]``."""
    n, size = len(q), q.shape[1] // heads
    groups = heads // (k.shape[1] // size)
    q = _turned(q.reshape(n, -1, size), base)
    k = np.repeat(_turned(k.reshape(n, -1, size), base), groups, axis=1)
    v = np.repeat(v.reshape(n, -1, size), groups, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
    scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    out: Floats = np.einsum("hqk,khd->qhd", shares, v).reshape(n, -1).astype(np.float32)
    return out


def _turned(x: Floats, base: float) -> Floats:
    """Rotary embeddings over pairs of neighbours, ``[n, heads, size]``."""
    n, _, size = x.shape
    speed = base ** (-np.arange(0, size, 2) / size)
    angles = (np.arange(n)[:, None] * speed)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    out[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return out
