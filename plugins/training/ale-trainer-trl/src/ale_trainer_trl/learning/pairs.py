"""A data set of preferences, as token ids on disk."""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import numpy as np
from datasets.arrow_writer import ArrowWriter  # type: ignore[import-untyped]

from ale.errors import InputError
from ale_trainer_trl.learning.options import DpoTraining
from ale_trainer_trl.learning.rows import Data, Place, Row, is_conversation, read_rows
from ale_trainer_trl.learning.tokens import (
    Pair,
    UnrenderableError,
    of_messages,
    of_text,
    tools_of,
)

FIELDS = ("prompt", "chosen", "rejected")
COLUMNS = ("chosen_ids", "chosen_mask", "rejected_ids", "rejected_mask")
TOO_LONG = "longer than max_length"
BEYOND_CONTEXT = "longer than the model's context"
_LONGEST = "longest"
"""Tokens of the longest pair that is longer than max_length; no count."""
THE_SAME = "chosen and rejected are the same"
EXPECTED = "prompt, chosen and rejected, all three text or all three lists of messages"


def load_pairs(
    training: DpoTraining, tokenizer: Any, file: Path, *, context: int = sys.maxsize
) -> Data:
    """Read, check and tokenise a data set of preferences.

    Args:
        training: names the data set, and which part of it to use.
        tokenizer: the model's.
        file: the ids are written here and memory-mapped, so memory does not grow with them.
        context: of the model, in tokens; longer pairs are left out and counted.

    Raises:
        InputError: a row is not a preference (with file and line), or no rows are left.
    """
    left_out: Counter[str] = Counter({TOO_LONG: 0, THE_SAME: 0})
    digest = hashlib.sha256()
    features = datasets.Features({name: datasets.List(datasets.Value("int32")) for name in COLUMNS})
    writer = ArrowWriter(path=str(file), features=features)
    for pair in _pairs(training, tokenizer, left_out, context):
        digest.update(repr(pair).encode())
        writer.write(as_row(pair))
    n_pairs, _ = writer.finalize()
    if not n_pairs:
        longest = left_out.pop(_LONGEST, 0)
        why = ", ".join(f"{n} {reason}" for reason, n in left_out.items() if n)
        raise InputError.of(
            f"{training.dataset_path} has no pair to train on" + (f": {why}" if why else ""),
            path="dataset_path",
            expected="rows of " + EXPECTED,
            hint=f"max_length: {longest} takes them all" if longest else None,
        )
    del left_out[_LONGEST]
    whole = datasets.Dataset.from_file(str(file))
    n_held_out = _held_out(n_pairs, training.evaluation_fraction)
    order = np.random.Generator(np.random.PCG64(training.seed)).permutation(n_pairs)
    return Data(
        train=whole.select(np.sort(order[n_held_out:])) if n_held_out else whole,
        held_out=whole.select(np.sort(order[:n_held_out])) if n_held_out else None,
        left_out=dict(left_out),
        fingerprint=digest.hexdigest(),
    )


def _held_out(n_pairs: int, fraction: float) -> int:
    """Number of pairs to hold out: at least one if asked for, leaving at least one to train on."""
    return min(max(int(n_pairs * fraction), int(fraction > 0.0)), n_pairs - 1)


def as_row(pair: Pair) -> dict[str, Sequence[int]]:
    """A pair under the names that the collator takes."""
    return {
        "chosen_ids": pair.chosen.ids,
        "chosen_mask": pair.chosen.mask,
        "rejected_ids": pair.rejected.ids,
        "rejected_mask": pair.rejected.mask,
    }


def _pairs(
    training: DpoTraining, tokenizer: Any, left_out: "Counter[str]", context: int
) -> Iterator[Pair]:
    for place, row in read_rows(training.dataset_path):
        pair = pair_of(tokenizer, row, place)
        if pair.chosen.ids == pair.rejected.ids:
            left_out[THE_SAME] += 1
        elif pair.longest > training.max_length:
            left_out[TOO_LONG] += 1
            left_out[_LONGEST] = max(left_out[_LONGEST], pair.longest)
        elif pair.longest > context:
            left_out[BEYOND_CONTEXT] += 1
        else:
            yield pair


def pair_of(tokenizer: Any, row: Row, place: Place) -> Pair:
    """The ids of one row.

    Raises:
        InputError: it is not a preference, or can't be rendered; with file and line.
    """
    file, line = place
    given = [row.get(name) for name in FIELDS]
    text = all(isinstance(each, str) for each in given)
    if not text and not all(map(is_conversation, given)):
        lacking = [name for name in FIELDS if row.get(name) is None]
        message = (
            f"'{lacking[0]}' is missing" if lacking else "prompt, chosen and rejected don't match"
        )
        hint = "ale data dpo makes such rows of scored ones" if "kind" in row else None
        raise InputError.of(message, file=file, line=line, expected=EXPECTED, hint=hint)
    if not text and not tokenizer.chat_template:
        message = "a conversation, and the model's tokenizer has no chat template"
        raise InputError.of(
            message, file=file, line=line, expected="prompt, chosen and rejected as text"
        )
    prompt, *answers = given
    try:
        tools = None if text else tools_of(row)
        chosen, rejected = (
            of_text(tokenizer, str(prompt), each)
            if isinstance(each, str)
            else of_messages(tokenizer, prompt, each, tools)  # type: ignore[arg-type]
            for each in answers
        )
        return Pair(chosen=chosen, rejected=rejected)
    except UnrenderableError as error:
        raise InputError.of(str(error), file=file, line=line) from error
