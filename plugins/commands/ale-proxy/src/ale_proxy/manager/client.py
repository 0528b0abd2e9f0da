"""Asks a bridge, also one that is being started again."""

import asyncio
import json
import os
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import aiohttp

from ale.errors import AleError

WAIT_S = 50.0
"""For a result, in one request."""
PATIENCE_S = 60.0
"""For which a bridge that does not answer is asked again: it may be starting."""

_KEY_HINT = "; --key-env names the variable that has it"


class BridgeClient:
    """Requests of a manager; each can be sent twice without harm.

    Args:
        url: of the bridge.
        key: the manager's, or None.
        patience_s: seconds for which a bridge that does not answer is asked again.
        report: gets a message when that begins.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        patience_s: float = PATIENCE_S,
        report: Callable[[str], None] = lambda message: None,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        # Waiting for results holds a connection for each task.
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=WAIT_S + 30)
        self._session = aiohttp.ClientSession(
            url.rstrip("/") + "/", headers=headers, connector=connector, timeout=timeout
        )
        self._url, self._patience_s, self._report = url, patience_s, report
        self._answers = True

    async def assign(self, **form: Any) -> str:
        """The id of an assignment. Raises as all requests do."""
        return str((await self._ask("POST", "tasks/assign", form))["id"])

    async def waited(self, id: str, wait_s: float) -> dict[str, Any]:
        """Where it is, once it has a result or this many seconds are over."""
        return await self._ask("GET", f"tasks/{id}?wait_s={min(wait_s, WAIT_S)}")

    async def say(self, id: str, score: float | None, text: str, author: str) -> dict[str, Any]:
        """Feedback; a score ends the assignment."""
        form = {"id": id, "score": score, "text": text, "author": author}
        return await self._ask("POST", "feedback", form)

    async def end(self, id: str) -> dict[str, Any]:
        """End an assignment without a score."""
        return await self._ask("DELETE", f"tasks/{id}")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _ask(self, method: str, path: str, form: Any = None) -> dict[str, Any]:
        """One request.

        Raises:
            AleError: the bridge refuses it, or does not answer for too long.
        """
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._patience_s, 0.1
        while True:
            try:
                async with self._session.request(method, path, json=form) as answer:
                    body = await answer.read()
                    self._answers = True
                    if answer.ok:
                        return dict(json.loads(body))
                    hint = _KEY_HINT if answer.status == HTTPStatus.UNAUTHORIZED else ""
                    raise AleError(f"the bridge refuses {method} /{path}: {_reason(body)}{hint}")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._silent(error, over=loop.time() >= until)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _silent(self, error: Exception, *, over: bool) -> None:
        """Say once that the bridge does not answer; raises when it has been asked for too long."""
        number = getattr(error, "errno", None) or 0
        why = os.strerror(number) if number > 0 else str(error) or type(error).__name__
        message = f"the bridge at {self._url} does not answer ({why})"
        if over:
            hint = "start it by `ale workers bridge`, or correct --bridge"
            raise AleError(f"{message}: {hint}") from error
        if self._answers:
            self._answers = False
            self._report(f"{message}; it is asked again for {self._patience_s:g} s")


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
