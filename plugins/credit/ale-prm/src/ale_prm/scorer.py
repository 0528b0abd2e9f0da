"""The scorer ``prm``."""

import asyncio
import logging
from collections.abc import Sequence

from ale.errors import InputError
from ale.protocols import ScoringContext
from ale.types import Chunk, StepScore
from ale_prm import head as heads
from ale_prm.frozen import FrozenModel, end_of, load_frozen
from ale_prm.options import PrmOptions

_LOG = logging.getLogger(__name__)

EMPTY = "the chunk has no part of a turn"


class Prm:
    """The value of the state after each chunk, of the conversation up to there alone."""

    def __init__(self, model: FrozenModel, head: heads.Head) -> None:
        self._model, self._head = model, head

    async def score(self, context: ScoringContext, chunks: Sequence[Chunk]) -> list[StepScore]:
        """A value for every chunk that is not empty."""
        places = [end_of(chunk.spans) for chunk in chunks if chunk.spans]
        vectors = await asyncio.to_thread(self._model.vectors, context.episode.trajectory, places)
        values = iter(self._head.scores(vectors))
        return [
            StepScore(value=next(values)) if chunk.spans else StepScore(abstained=EMPTY)
            for chunk in chunks
        ]

    async def aclose(self) -> None:
        """Nothing is open."""


def prm(options: PrmOptions, context: object) -> Prm:
    """The scorer, if its model is the one that the head was trained on."""
    head, stored, about = heads.read(options.head, path="head")
    name = about.model if options.model is None else options.model
    model = load_frozen(name, path="model")
    if model.digest != about.weights or not heads.is_of(model.probe(), stored):
        raise InputError.of(
            f"{name} is not the model that the head in {options.head} was trained on",
            path="model",
            expected=f"the same weights and tokenizer as {about.model} had",
        )
    if about.shuffled:
        _LOG.warning(
            "warning: the labels of the head in %s were dealt at random (--shuffled): as a scorer, "
            "it is a control",
            options.head,
        )
    return Prm(model, head)
