"""Retries: exponential backoff with jitter, the server's ``Retry-After``, and a deadline."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import TypeVar

from attrs import field, frozen

from ale.errors import LLMError
from ale_openai_wire.options import ChatOptions

T = TypeVar("T")

_EXCERPT = 400
"""Characters of a server's message that an error repeats."""


class AttemptError(Exception):
    """One attempt failed.

    Args:
        reason: in one line, free of secrets.
        transient: another attempt may succeed.
        wait_s: what the server asks to wait, seconds.
        kind: what to raise where there is no further attempt.
        refused: the server refused it because it has too many requests, or for a quota.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool,
        wait_s: float | None = None,
        kind: type[LLMError] = LLMError,
        refused: bool = False,
    ) -> None:
        self.reason = reason
        self.transient = transient
        self.wait_s = wait_s
        self.kind = kind
        self.refused = refused
        super().__init__(reason)


@frozen
class Redactor:
    """Prepares a server's message for an error: without the key, on one line, and short."""

    _key: str | None = field(default=None, repr=False)

    def __call__(self, text: str) -> str:
        """The text, cleaned."""
        if self._key:
            text = text.replace(self._key, "***")
        text = " ".join(text.split())
        return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."


def backoff(options: ChatOptions, retry: int, rng: random.Random) -> float:
    """Seconds before the retry with this 0-based number: the doubled wait, less up to half of it.

    The jitter keeps many episodes that met one overload from retrying at the same moment.
    """
    wait = min(options.retry_min_s * 2.0 ** min(retry, 60), options.retry_max_s)
    return wait * (1 - 0.5 * rng.random())


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    options: ChatOptions,
    *,
    where: str,
    rng: random.Random,
    monotonic: Callable[[], float] = time.perf_counter,
) -> T:
    """The result of the first attempt that succeeds.

    Args:
        attempt: one attempt; raises `AttemptError`. It is cancelled after `timeout_s`.
        options: how many attempts, how far apart, and how long in all. What a server asks for with
            ``Retry-After`` is not shortened.
        where: model and server, for the error.
        rng: for the jitter.

    Raises:
        LLMError: with `transient` set, every attempt failed in a way that may pass; else, one
            failed in a way that no retry helps against. Then it is of the attempt's `kind`.
    """
    started = monotonic()
    reasons: list[str] = []
    while True:
        elapsed = monotonic() - started
        allowed = max(0.0, min(options.timeout_s, options.deadline_s - elapsed))
        try:
            async with asyncio.timeout(allowed):
                return await attempt()
        except AttemptError as caught:
            failed = caught
        except TimeoutError:
            failed = AttemptError(f"no answer within {allowed:.3g} s", transient=True)
        # Raised out here, so that no SDK's error, with headers in it, stays as the context.
        reasons.append(failed.reason)
        if not failed.transient:
            raise failed.kind(f"{where}: {failed.reason}")
        wait = _wait(failed, options, len(reasons) - 1, rng)
        elapsed = monotonic() - started
        if len(reasons) > options.max_retries or elapsed + wait >= options.deadline_s:
            raise LLMError(_exhausted(where, reasons, elapsed, wait, options), transient=True)
        await asyncio.sleep(wait)


def _wait(failed: AttemptError, options: ChatOptions, retry: int, rng: random.Random) -> float:
    """Seconds: at least the backoff and what the server asks for, with jitter."""
    own = backoff(options, retry, rng)
    if failed.wait_s is None:
        return own
    return max(own, failed.wait_s + options.retry_min_s * rng.random())


def _exhausted(
    where: str, reasons: list[str], elapsed: float, wait: float, options: ChatOptions
) -> str:
    counted = [(reason, len(list(same))) for reason, same in groupby(reasons)]
    tried = "; then ".join(r if n == 1 else f"{n} times {r}" for r, n in counted)
    attempts = "1 attempt" if len(reasons) == 1 else f"{len(reasons)} attempts"
    text = f"no answer from {where} after {attempts} in {elapsed:.1f} s: {tried}"
    if len(reasons) <= options.max_retries:
        text += f"; a wait of {wait:.3g} s would pass the deadline of {options.deadline_s:g} s"
    return text
