"""Makes a tiny model that does what a hint says, and without one answers at random.

    python configs/distillation_model.py FOLDER

It stands for a model that follows instructions: configs/distillation.yaml teaches it without a
reward what it would answer if it were told.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ale_llm_policy.options import TinyShape
from ale_llm_policy.pretrained.tiny import make_tiny

COLOURS = ("red", "green")
QUESTIONS = ("Which gate leads to the garden?", "Which gate leads to the street?")
SHAPE = TinyShape(layers=2, width=64, heads=2, kv_heads=1, mlp=128, vocabulary=400, context=256)


def main(folder: Path) -> None:
    """Train the model, and write it."""
    texts = [*QUESTIONS, *(f"Hint: Take the {colour} one." for colour in COLOURS)]
    model, tokenizer = make_tiny(texts, SHAPE, seed=0, whole=COLOURS)
    # Without a hint, each colour is the answer as often.
    pairs = [(question + hint, colour) for question in QUESTIONS for hint, colour in _hinted()]
    ids, labels = _batch(tokenizer, pairs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _hinted() -> Iterator[tuple[str, str]]:
    for colour in COLOURS:
        yield f"\n\nHint: Take the {colour} one.", colour
        yield "", colour


def _batch(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Token ids, filled up on the right, and the answers alone as labels."""
    rows, labels = [], []
    for asked, colour in pairs:
        said = [{"role": "user", "content": asked}]
        prompt = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
        answer = [*tokenizer(colour)["input_ids"], tokenizer.eos_token_id]
        rows.append(torch.tensor([*prompt, *answer]))
        labels.append(torch.tensor([-100] * len(prompt) + answer))
    ids = pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_token_id)
    return ids, pad_sequence(labels, batch_first=True, padding_value=-100)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
