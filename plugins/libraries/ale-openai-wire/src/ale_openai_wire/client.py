"""What clients of such models do alike: one request at a time, retries, and the check of a name."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

from attrs import evolve

from ale.errors import LLMError
from ale.plugin import BuildContext, Secret
from ale.types import CompletionRequest, Conversation, Message, Sampling
from ale_openai_wire.hints import unknown_model
from ale_openai_wire.models import checks_names, lists
from ale_openai_wire.options import ChatOptions
from ale_openai_wire.response import Answer
from ale_openai_wire.retry import AttemptError, Redactor, with_retries

_log = logging.getLogger(__name__)

ONE_TOKEN = CompletionRequest(
    messages=(Message(role="user", content="Hi"),),
    sampling=Sampling(max_tokens=1),
    conversation=Conversation(episode_id="check", task_id="check", rollout=0, seed=0),
    turn=0,
)
"""The smallest request: whether there is a model at all."""
_ASK_S = 10.0
"""Seconds to wait for its answer: a server may have to load the model first."""
_ASKED_AGAIN = 2


class ChatClient:
    """The base of a model component.

    Args:
        options: of retries, sampling and concurrency.
        key: left out of every error.
        where: model and server, for errors.
    """

    def __init__(
        self, options: ChatOptions, *, key: Secret | None, context: BuildContext, where: str
    ) -> None:
        self._context = context
        self._where = where
        self._redact = Redactor(None if key is None else key.value)
        self._chat_options = options
        self._defaults = Sampling(
            temperature=options.temperature, top_p=options.top_p, max_tokens=options.max_tokens
        )
        self.refused = 0
        """As `ale.protocols.CountsRefusals` has it."""
        self._gate = asyncio.Semaphore(options.max_concurrency)
        self._reached = False
        """Has the server answered at least once?"""
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._where}>"

    async def _answer(
        self, request: CompletionRequest, attempt: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """One answer, after as many attempts as the options allow.

        Raises:
            LLMError: closed, no tools, or as `with_retries`.
        """
        if self._closed:
            raise LLMError(f"{self!r} is closed")
        if request.tools and not self._chat_options.tools:
            raise LLMError(f"{self!r} takes no tools: its option 'tools' is off")

        async def counted() -> Answer:
            try:
                return await attempt()
            except AttemptError as error:
                self.refused += error.refused
                raise

        jitter = f"{self._context.seed}/{request.conversation.episode_id}/{request.turn}"
        async with self._gate:
            return await with_retries(
                counted,
                self._chat_options,
                where=self._where,
                rng=random.Random(jitter),  # noqa: S311
                monotonic=self._context.monotonic,
            )

    async def _check_listed(
        self,
        models: Mapping[str, str],
        name: str,
        attempt: Callable[[], Awaitable[Answer]],
        *,
        where: str,
    ) -> None:
        """Does the server have the model? Where its list does not tell, it is asked for one token.

        Args:
            models: that the server lists, with their owners; empty if it has no list.
            attempt: sends `ONE_TOKEN`.
            where: model and server, for errors.

        Raises:
            LLMError: it does not, or refuses the request, or answers with something else.
        """
        if lists(models, name):
            return
        if models and checks_names(models):
            raise LLMError(f"{where}: {unknown_model(name, models)}")
        options = evolve(
            self._chat_options, max_retries=min(_ASKED_AGAIN, self._chat_options.max_retries)
        )
        try:
            async with asyncio.timeout(_ASK_S):
                await with_retries(attempt, options, where=where, rng=random.Random(0))  # noqa: S311
        except TimeoutError:
            _log.warning(
                "%s: no answer to a request for one token within %g s; the server may be loading "
                "the model",
                where,
                _ASK_S,
            )
            return
        if models:
            listed = ", ".join(sorted(models))
            _log.warning("%s: the server answers as %r, but lists only %s", where, name, listed)


def missing_model(models: Mapping[str, str], name: str) -> str | None:
    """What to say of a name that the server's list of models does not have, else None."""
    return None if not models or lists(models, name) else unknown_model(name, models)
