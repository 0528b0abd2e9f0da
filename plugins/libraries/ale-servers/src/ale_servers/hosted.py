"""The model component of a server program: its chat API, and a gateway for clients with ids.

A run asks programs of its own through this component, in its own process. `ale serve` puts it
behind HTTP, for clients in other processes.
"""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from attrs import evolve

from ale.errors import InputError
from ale.types import Completion, CompletionRequest, LLMCapabilities
from ale_openai_wire import completion, messages, read_answer, sampling_fields, turn_seed
from ale_servers.client import Connections
from ale_servers.gateway import Gateway, Model, OnStart
from ale_servers.options import HostedOptions
from ale_servers.program import Asked, Program
from ale_servers.supervisor import Command, supervised

log = logging.getLogger(__name__)
NAME = "policy"
"""The model's name in the program."""
_ENDING = (sys.executable, "-m", "ale_servers.ending")


class HostedLLM:
    """An `LLM` that answers through the chat API of a program on this machine; `server` samples for
    training. The program starts with the first request.

    Args:
        model: what the program serves, under the name `NAME`.
        command: the program, which need not end with this process by itself.
        url: where the program then listens.
        program: makes the program's API.
        key: what the program asks of its callers, so that no other user and no web page is one.
    """

    def __init__(
        self,
        model: Model,
        command: Command,
        url: str,
        program: Callable[[Asked], Program],
        *,
        key: str | None = None,
    ) -> None:
        self.command = evolve(command, argv=(*_ENDING, *command.argv))
        self._connections = Connections()
        self.asked = Asked(url, self._connections, key)
        self.server = Gateway(model, program(self.asked), self._run)
        """Samples for clients that have ids."""
        self.supervising: asyncio.Task[None] | None = None
        """Keeps the program running, and ends when it gives up. None: it was not started yet."""
        self._report: Callable[[str], None] = log.warning
        self._failures: int | None = None

    def own(self, output: Path, *, failures: int) -> None:
        """Make it a server of this process alone. Called before the first request.

        Args:
            output: file for the program's output; its name is in messages about the program.
            failures: as for `supervised`.
        """
        self.command = evolve(self.command, log=output)
        self._report = partial(log.warning, "%s: %s", output.stem)
        self._failures = failures

    @asynccontextmanager
    async def _run(self, on_start: OnStart) -> AsyncIterator[None]:
        kept = supervised(self.command, self._report, on_start, failures=self._failures)
        async with kept as self.supervising:
            yield

    @property
    def capabilities(self) -> LLMCapabilities:
        """The capabilities of the chat API: text only. Clients with ids use `server`."""
        return LLMCapabilities(tools=False)

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer, with the model's own chat template.

        Raises:
            ContextLengthError: the conversation is too long.
            LLMError: the program failed, or did not start.
        """
        await self.server.started()
        body = {
            "model": NAME,
            "messages": messages(request.messages),
            "seed": turn_seed(request.conversation, request.turn),
            **sampling_fields(request.sampling),
        }
        answer = await self.asked.post("/v1/chat/completions", body, timeout_s=None)
        return completion(read_answer(json.dumps(answer).encode()), turn=request.turn, model=NAME)

    async def aclose(self) -> None:
        """End the program. Idempotent."""
        await self.server.aclose()
        await self._connections.aclose()


def model_in(options: HostedOptions) -> Model:
    """The model in the options' folder.

    Raises:
        InputError: the folder holds no model of transformers.
    """
    folder = options.model.absolute()
    try:
        config = json.loads((folder / "config.json").read_text())
        config = {**config, **config.get("text_config", {})}
        own, vocabulary = (int(config[key]) for key in ("max_position_embeddings", "vocab_size"))
    except (OSError, ValueError, KeyError) as error:
        message = f"{folder} holds no model of transformers: {error!r}"
        raise InputError.of(message, path="llm.model") from error
    return Model(
        folder=folder,
        name=folder.name,
        # Leave a place for the token that programs sample even when asked only for scores.
        context=min(own, options.context or own) - 1,
        vocabulary=vocabulary,
        max_running=options.max_batch,
        start_s=options.start_s,
        adapters=options.adapters,
    )
