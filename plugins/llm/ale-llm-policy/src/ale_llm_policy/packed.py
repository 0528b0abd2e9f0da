"""A Llama-family decoder on packed weights: few large products, no module calls.

The weights are a copy, made by `refresh`. A trainer may change the model while answers are sampled;
new weights are used from the next `refresh` on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.functional import linear, pad, rms_norm, silu

from ale_llm_policy.attention import attend
from ale_llm_policy.kv_cache import CacheStep, KVCache, causal_bias
from ale_training.quantised import is_quantised

FAMILY = ("Qwen3ForCausalLM", "Qwen2ForCausalLM", "LlamaForCausalLM")
MIN_ROWS = 16
"""Fewest rows of a product with weights on a CPU. With fewer, for widths of about 25 per row and
more, MKL uses another kernel, whose results differ in the last bits."""
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


def is_packable(model: Any) -> bool:
    """Can this model be packed?

    It needs static RoPE, SiLU, weights that are not quantised, and no sliding window.
    """
    if type(model).__name__ not in FAMILY or is_quantised(model):
        return False
    config = model.config
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    types = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        config.hidden_act in ("silu", "swish")
        and rope in _STATIC_ROPE
        and types == {"full_attention"}
    )


@frozen
class _Layer:
    """One block. Matrices are ``[out, in]``."""

    before: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    norms: Tensor | None
    """``[heads + kv_heads, width]`` of the query and key norms."""
    out: Tensor
    out_bias: Tensor | None
    after: Tensor
    gate_up: Tensor
    down: Tensor


class Packed:
    """Forward passes over a KV cache.

    Args:
        model: one that `is_packable`.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        config = model.config
        self._heads: int = config.num_attention_heads
        self._kv: int = config.num_key_value_heads
        self._width: int = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self._eps: float = config.rms_norm_eps
        self.refresh()

    def refresh(self) -> None:
        """Copy the model's current weights, adapters merged."""
        decoder = self._model.model
        with torch.no_grad():
            self._embedding = _copy(decoder.embed_tokens.weight)
            self._final = _copy(decoder.norm.weight)
            head = weight_of(self._model.lm_head)
            tied = head.data_ptr() == decoder.embed_tokens.weight.data_ptr()
            self._head = self._embedding if tied else _copy(head)
            self._layers = [self._pack(layer) for layer in decoder.layers]
            rotary = decoder.rotary_emb
            self._frequencies = rotary.inv_freq.float()
            self._rope_scale = float(rotary.attention_scaling)

    def _pack(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        biases = [bias_of(part) for part in parts]
        norms = None
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm.weight, attention.k_norm.weight
            norms = torch.cat([q.expand(self._heads, -1), k.expand(self._kv, -1)])
        bias = bias_of(attention.o_proj)
        return _Layer(
            before=_copy(layer.input_layernorm.weight),
            qkv=torch.cat([weight_of(part) for part in parts]),
            qkv_bias=None if biases[0] is None else torch.cat([b for b in biases if b is not None]),
            norms=norms,
            out=_copy(weight_of(attention.o_proj)),
            out_bias=None if bias is None else _copy(bias),
            after=_copy(layer.post_attention_layernorm.weight),
            gate_up=torch.cat([weight_of(mlp.gate_proj), weight_of(mlp.up_proj)]),
            down=_copy(weight_of(mlp.down_proj)),
        )

    def forward(self, ids: Tensor, starts: Tensor, cache: KVCache, step: CacheStep) -> Tensor:
        """Compute the new tokens of some rows.

        Args:
            ids: ``[rows, tokens]``.
            starts: ``[rows]``, current length of each row.

        Returns:
            The last hidden states, ``[rows, tokens, width]``; see `logits`.
        """
        rows, tokens = ids.shape
        cos, sin = self._rope(starts, tokens)
        bias = causal_bias(starts, tokens, step.columns).to(self._embedding.dtype)
        x = _pad_rows(self._embedding[ids.reshape(-1)])
        for index, layer in enumerate(self._layers):
            write = partial(cache.write, index, step)
            mixed = self._attention(layer, self._norm(x, layer.before), (cos, sin), bias, write)
            x = torch.addmm(x, mixed, layer.out.t())
            if layer.out_bias is not None:
                x += layer.out_bias
            gate, up = linear(self._norm(x, layer.after), layer.gate_up).chunk(2, -1)
            x = torch.addmm(x, silu(gate).mul_(up), layer.down.t())
        return x[: rows * tokens].view(rows, tokens, -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[n, width]`` -> ``[n, vocabulary]``, float32."""
        found = linear(self._norm(_pad_rows(hidden), self._final), self._head)
        return found[: len(hidden)].float()

    def _attention(
        self,
        layer: _Layer,
        x: Tensor,
        rope: tuple[Tensor, Tensor],
        bias: Tensor,
        write: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> Tensor:
        rows, _, tokens, _ = bias.shape
        n_rotated = self._heads + self._kv
        qkv = linear(x, layer.qkv, layer.qkv_bias)[: rows * tokens]
        qkv = qkv.view(-1, n_rotated + self._kv, self._width)
        rotated = qkv[:, :n_rotated]
        if layer.norms is not None:
            rotated = rms_norm(rotated, (self._width,), None, self._eps) * layer.norms
        rotated = _rotate(rotated, *rope)
        keys, values = write(rotated[:, self._heads :], qkv[:, n_rotated:])
        query = rotated[:, : self._heads].view(rows, tokens, self._heads, self._width)
        out = attend(query.transpose(1, 2), keys, values, bias, self._width**-0.5)
        return _pad_rows(out.transpose(1, 2).reshape(rows * tokens, -1))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self._eps)

    def _rope(self, starts: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine, ``[rows * tokens, 1, width]``."""
        positions = (starts[:, None] + torch.arange(tokens, device=starts.device)).reshape(-1, 1)
        angle = positions.float() * self._frequencies
        angle = torch.cat([angle, angle], -1)[:, None]
        dtype = self._embedding.dtype
        return (
            (angle.cos() * self._rope_scale).to(dtype),
            (angle.sin() * self._rope_scale).to(dtype),
        )


def _pad_rows(x: Tensor) -> Tensor:
    """Pad with zero rows to at least `MIN_ROWS` rows on a CPU."""
    missing = MIN_ROWS - len(x)
    return x if x.is_cuda or missing <= 0 else pad(x, (0, 0, 0, missing))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, with halves paired as in transformers."""
    first, second = x.chunk(2, -1)
    return torch.addcmul(x * cos, torch.cat((-second, first), -1), sin)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().clone()


def weight_of(module: Any) -> Tensor:
    """The matrix by which a linear layer multiplies, with PEFT's LoRA adapters merged in."""
    base = getattr(module, "base_layer", module)
    weight: Tensor = base.weight.detach()
    if base is module or module.disable_adapters or module.merged:
        return weight
    for name in module.active_adapters:
        if name in module.lora_A:
            weight = weight + module.get_delta_weight(name).detach().to(weight.dtype)
    return weight


def bias_of(module: Any) -> Tensor | None:
    """The bias of a linear layer; None if it has none."""
    bias = getattr(getattr(module, "base_layer", module), "bias", None)
    return None if bias is None else bias.detach()
