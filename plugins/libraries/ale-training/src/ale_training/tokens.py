"""Whether a model can read the tokens of episodes."""

import sys
from typing import Any

from ale.errors import AleError


def context_of(config: Any) -> int:
    """Most tokens that a model of transformers was designed for, prompt and answer together."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", 0) or sys.maxsize)


def check_tokens(model: Any, *, lowest: int, highest: int, longest: int) -> None:
    """Check that a model can read token ids from `lowest` to `highest`, `longest` of them in a row.

    Args:
        model: of transformers.

    Raises:
        AleError: an id is not in its vocabulary, or a row is longer than its context.
    """
    size = int(model.config.get_text_config().vocab_size)
    wrong = lowest if lowest < 0 else highest
    if not 0 <= wrong < size:
        raise AleError(
            f"token id {wrong} is outside the model's vocabulary of {size}: these episodes were "
            "sampled from another model"
        )
    context = context_of(model.config)
    if longest > context:
        raise AleError(
            f"an episode has {longest} tokens in one context, and the model's holds {context}: "
            "these episodes were sampled from another model"
        )
