"""What clients of such models do alike: one request at a time, retries, and the check of a name."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

from ale.errors import LLMError
from ale.plugin import BuildContext, Secret
from ale.types import CompletionRequest, Sampling
from ale_openai_wire.hints import unknown_model
from ale_openai_wire.models import checks_names, lists
from ale_openai_wire.options import ChatOptions
from ale_openai_wire.response import Answer
from ale_openai_wire.retry import Redactor, with_retries

_log = logging.getLogger(__name__)


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
        jitter = f"{self._context.seed}/{request.conversation.episode_id}/{request.turn}"
        async with self._gate:
            return await with_retries(
                attempt,
                self._chat_options,
                where=self._where,
                rng=random.Random(jitter),  # noqa: S311
                monotonic=self._context.monotonic,
            )


def missing_model(models: Mapping[str, str], name: str) -> str | None:
    """What to say of a name that the server's list of models does not have, else None."""
    return None if not models or lists(models, name) else unknown_model(name, models)


def check_model(models: Mapping[str, str], name: str, *, where: str) -> None:
    """Is the model in the server's list? A warning where servers of this kind take any name.

    Raises:
        LLMError: it is not, and the server is known to refuse such names.
    """
    problem = missing_model(models, name)
    if problem is None:
        return
    if checks_names(models):
        raise LLMError(f"{where}: {problem}")
    _log.warning("%s: %s (asking anyway: some servers take any name)", where, problem)
