"""Any causal model of transformers over the KV cache, through its own forward pass."""

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from ale.errors import InputError
from ale_llm_policy.attention import attend
from ale_llm_policy.kv_cache import CacheStep, KVCache, causal_bias

_NAME = "ale_rows"
_KINDS = {"full_attention", "sliding_attention"}


class _Rows(Cache):
    """A transformers cache that writes one step into the KV cache."""

    def __init__(self, cache: KVCache, step: CacheStep) -> None:
        super().__init__(layers=[])
        self._cache = cache
        self._step = step

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write ``[rows, heads, tokens, width]``; returns all keys and values of the rows."""
        keys, values = (each.transpose(1, 2).flatten(0, 1) for each in (key_states, value_states))
        return self._cache.write(layer_idx, self._step, keys, values)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Unused: position ids are passed to the model."""
        return 0


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query, key, value, attention_mask, scale).transpose(1, 2).contiguous(), None


class Modules:
    """Forward passes through the model's own modules.

    Args:
        model: a transformers model whose layers all have full or sliding-window attention.

    Raises:
        InputError: it has other layers, whose state is not one key and value per token.
    """

    def __init__(self, model: Any) -> None:
        AttentionInterface.register(_NAME, _attention)
        self._model = model
        self._config = model.config.get_text_config()
        self._kinds = set(getattr(self._config, "layer_types", None) or ())
        self._window = getattr(self._config, "sliding_window", None)
        # Renamed in transformers 5.24.
        taken = inspect.signature(model.base_model.forward).parameters
        self._cache_name = "cache" if "cache" in taken else "past_key_values"
        self._unused = torch.zeros((1, 1), dtype=torch.int64)
        self._output: Any = None
        if self._kinds - _KINDS or getattr(model, "_is_stateful", False):
            other = ", ".join(sorted(self._kinds - _KINDS)) or "recurrent state"
            message = f"{type(model).__name__} has layers with {other}"
            expected = "full or sliding-window attention in every layer"
            raise InputError.of(message, path="llm.model", expected=expected)
        # Soft caps and attention sinks change scores; the model's eager attention has them.
        odd = getattr(self._config, "attn_logit_softcapping", None) is not None
        self._implementation = "eager" if odd or self._config.model_type == "gpt_oss" else _NAME

    def refresh(self) -> None:
        """Does nothing: the modules' own weights are used."""

    def forward(self, ids: Tensor, starts: Tensor, cache: KVCache, step: CacheStep) -> Tensor:
        """As `Packed.forward`."""
        tokens = ids.shape[1]
        positions = starts[:, None] + torch.arange(tokens, device=ids.device)
        configs = {id(m.config): m.config for m in self._model.modules() if hasattr(m, "config")}
        before = {key: config._attn_implementation for key, config in configs.items()}
        for config in configs.values():
            config._attn_implementation = self._implementation
        training = self._model.training
        self._model.eval()
        try:
            output = self._model.base_model(
                input_ids=ids,
                position_ids=positions,
                attention_mask=self._masks(starts, tokens, step.columns),
                use_cache=True,
                **{self._cache_name: _Rows(cache, step)},
            )
        finally:
            self._model.train(training)
            for key, config in configs.items():
                config._attn_implementation = before[key]
        self._output = type(output)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """As `Packed.logits`, but by the model's own forward pass from its last hidden states on,
        as some models scale or cap the output layer's result.
        """
        base = self._model.base_model
        base.forward = lambda *_, **__: self._output(last_hidden_state=hidden[None])
        try:
            logits: Tensor = self._model(input_ids=self._unused, use_cache=False).logits
        finally:
            del base.forward
        return logits[0].float()

    def _masks(self, starts: Tensor, tokens: int, columns: int) -> Any:
        dtype = next(self._model.parameters()).dtype
        full = causal_bias(starts, tokens, columns).to(dtype)
        if self._window is None:
            return full if len(self._kinds) < 2 else dict.fromkeys(self._kinds, full)
        sliding = causal_bias(starts, tokens, columns, self._window).to(dtype)
        if not self._kinds:
            return sliding
        return {"full_attention": full, "sliding_attention": sliding}
