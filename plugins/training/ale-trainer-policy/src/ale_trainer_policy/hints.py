"""Hints: texts that the teacher of a KL term reads, and the student does not.

    student   [... | user: the goal            | assistant:] answer ...
    teacher   [... | user: the goal  Hint: ... | assistant:] answer ...

The teacher scores the answers that the student has sampled, after the same ids but for the hint,
which is inserted at the end of the message that each context's first answer replies to. With the
policy itself as the teacher this is self-distillation of what the hint says.

Source: on-policy distillation, arXiv:2306.13649; hints from feedback on the answer itself, as
OpenClaw-RL takes them.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from ale.errors import InputError
from ale.strict import read_texts
from ale.types import Batch, Episode

if TYPE_CHECKING:
    from ale_trainer_policy.options import HintOptions
    from ale_trainer_policy.samples import Ints, Sample

PATH = "trainer.objective.kl.hint"
OTHERS = "*"
"""For tasks that have no text of their own."""
_MARK = "ale-hint-mark"
_SHORTEST = 10
"""Characters of feedback that can be a hint: a shorter text says how good an answer was, and not
what to do."""


class Hints:
    """Chooses the hint of each sample, and inserts it for the teacher.

    Args:
        options: where hints come from.

    Raises:
        InputError: the file of hints can't be read, or has something else in it.
    """

    def __init__(self, options: HintOptions) -> None:
        self._texts = None if options.file is None else read_texts(options.file)
        self._encoder: Any = None
        self._tail: Ints = np.zeros(0, np.int64)
        self._context = 0

    def attach(self, tokenizer: Any, context: int) -> None:
        """Take the tokenizer of the policy.

        Args:
            context: the most tokens that the teacher reads.

        Raises:
            InputError: it has no chat template, or one that does not write a user's message.
        """
        self._context = context
        tail = _tail(tokenizer)
        # A copy: what follows is a setting of the encoder, which the sampler uses in other threads.
        self._encoder = copy.deepcopy(tokenizer.backend_tokenizer)
        self._tail = self._ids(tail)
        # In a hint, which somebody wrote, the name of a special token is text.
        self._encoder.encode_special_tokens = True

    def given(self, batch: Batch, samples: Sequence[Sample], counts: Counter[str]) -> list[Sample]:
        """The samples with their hints; without one, a sample has no KL term."""
        episodes = {
            rollout.episode.id: rollout.episode
            for group in batch.groups
            for rollout in group.group.rollouts
        }
        return [self._with_hint(each, episodes[each.episode], counts) for each in samples]

    def _with_hint(self, sample: Sample, episode: Episode, counts: Counter[str]) -> Sample:
        text = self._text(episode)
        if text is None:
            counts["trajectories_without_hint"] += 1
            return evolve(sample, regularised=0.0)
        hint = self._ids(f"\n\nHint: {text}")
        for number in np.unique(sample.row[sample.sampled]):
            row, start = sample.rows[number], sample.starts[number]
            ends = row[max(0, start - len(self._tail)) : start]
            placed = np.array_equal(ends, self._tail)
            if not placed or len(row) + len(hint) > self._context:
                counts["hints_too_long" if placed else "hints_not_placed"] += 1
                return evolve(sample, regularised=0.0)
        return evolve(sample, hint=hint)

    def _text(self, episode: Episode) -> str | None:
        """The text for an episode: that of its task, or the longest of its own feedback."""
        if self._texts is not None:
            return self._texts.get(episode.task_id, self._texts.get(OTHERS))
        said = (entry["text"].strip() for entry in episode.metadata.get("feedback", ()))
        return max((text for text in said if len(text) >= _SHORTEST), key=len, default=None)

    def shown(self, sample: Sample) -> Sample:
        """A sample as the teacher reads it: with its hint in every context."""
        assert sample.hint is not None
        rows = [
            np.concatenate([row[:cut], sample.hint, row[cut:]])
            for row, start in zip(sample.rows, sample.starts, strict=True)
            for cut in [max(0, start - len(self._tail))]
        ]
        return evolve(sample, rows=tuple(rows), at=sample.at + len(sample.hint))

    def _ids(self, text: str) -> Ints:
        return np.asarray(self._encoder.encode(text, add_special_tokens=False).ids, dtype=np.int64)


def _tail(tokenizer: Any) -> str:
    """Text of the chat template after a user's message, up to where the answer begins."""
    if tokenizer is None or not tokenizer.chat_template:
        raise _refused("the policy's tokenizer has no chat template")
    messages = [{"role": "user", "content": _MARK}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program of its own
        raise _refused(f"the chat template fails: {error}") from error
    if _MARK not in text:
        raise _refused("the chat template leaves a user's message out")
    return str(text.rpartition(_MARK)[2])


def _refused(why: str) -> InputError:
    return InputError.of(
        f"a hint can't be added to a user's message: {why}",
        path=PATH,
        expected="a policy whose chat template writes messages of users",
    )
