"""A teacher on a server: its log-probabilities of ids that the policy has sampled."""

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from ale.errors import InputError, LLMError
from ale_servers.client import Connections, HTTPServer
from ale_servers.records import Entry, SampleRequest, ServerStatus
from ale_trainer_policy.samples import Floats, Sample

PATH = "trainer.objective.kl.server"
T = TypeVar("T")


class ServedTeacher:
    """Scores samples by the model of a server of ale's protocol, at temperature 1.

    Such servers are `ale serve` with a policy, and vLLM or SGLang behind `ale server start`.

    Args:
        url: up to ``/ale``.
        key: of the server, or None.

    Raises:
        InputError: it does not answer, or by no such protocol.
    """

    def __init__(self, url: str, key: str | None) -> None:
        self._entry, self._key = Entry(url=url.rstrip("/")), key
        try:
            status: ServerStatus = _done(self._status())
        except LLMError as error:
            raise InputError.of(str(error), path=PATH) from error
        self.context = status.context
        """Most tokens that it reads."""

    def logps(self, pieces: Sequence[Sequence[Sample]]) -> list[Floats]:
        """log pi of each micro-batch, as `Scorer.logps`.

        Raises:
            LLMError: the server does not answer, or refuses.
        """
        return _done(self._scored(pieces))

    async def _status(self) -> ServerStatus:
        async with contextlib.aclosing(Connections(self._key)) as connections:
            return await HTTPServer(self._entry, connections).status()

    async def _scored(self, pieces: Sequence[Sequence[Sample]]) -> list[Floats]:
        async with contextlib.aclosing(Connections(self._key)) as connections:
            server = HTTPServer(self._entry, connections)
            samples = [sample for piece in pieces for sample in piece]
            found = iter(await asyncio.gather(*(_logp(server, each) for each in samples)))
            empty = np.zeros(0)
            return [np.concatenate([empty, *(next(found) for _ in piece)]) for piece in pieces]


async def _logp(server: HTTPServer, sample: Sample) -> Floats:
    """log pi of a sample's tokens; each of its contexts is scored from its first token on."""
    found = np.zeros(len(sample.at))
    for own, request in _requests(sample):
        answered = await server.sample(request)
        if answered.ids != request.forced_ids:
            raise LLMError("the teacher's server has scored other ids than those that it was given")
        found[own] = np.asarray(answered.logprobs)[sample.at[own] - len(request.prompt_ids)]
    return found


def _requests(sample: Sample) -> Iterator[tuple[Any, SampleRequest]]:
    """For each context the mask of its tokens, and the request that scores them."""
    for number in np.unique(sample.row):
        own = sample.row == number
        row, first = sample.rows[number].tolist(), int(sample.at[own].min())
        forced = tuple(row[first : int(sample.at[own].max()) + 1])
        yield (
            own,
            SampleRequest(
                id=os.urandom(8).hex(),
                prompt_ids=tuple(row[:first]),
                forced_ids=forced,
                max_tokens=len(forced),
            ),
        )


def _done(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in a thread of its own: the caller's may have a running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
