"""TRL's DPO trainer on given token ids and masks."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from trl import DPOTrainer  # type: ignore[attr-defined]


@frozen
class PairCollator:
    """Collates pairs into a batch: the first half is chosen, the second rejected.

    Attributes:
        pad_id: padding token.
    """

    pad_id: int

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, Tensor]:
        """Tensors of shape (2 B, T), T being the longest sequence's length."""
        sides = ("chosen", "rejected")
        ids = [torch.tensor(row[f"{side}_ids"]) for side in sides for row in rows]
        masks = [torch.tensor(row[f"{side}_mask"]) for side in sides for row in rows]
        ones = [torch.ones_like(each) for each in ids]
        return {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_id),
            "attention_mask": pad_sequence(ones, batch_first=True),
            "completion_mask": pad_sequence(masks, batch_first=True),
        }


class PairTrainer(DPOTrainer):
    """DPO on rows of `pairs.COLUMNS`.

    TRL itself tokenises text, with one prompt per pair and all later tokens unmasked. Here ids are
    given, exactly as sampled if they come from a run, and the mask selects the model's own tokens.
    """

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset
