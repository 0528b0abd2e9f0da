"""Asking again: exponential backoff with jitter, the server's own wish, and a deadline."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import TypeVar

from attrs import field, frozen

from ale.errors import ContextLengthError, LLMError

T = TypeVar("T")

_EXCERPT = 400
"""Characters of a server's own words that an error repeats."""


@frozen(kw_only=True)
class RetryPolicy:
    """How often, how long apart and for how long to ask."""

    max_retries: int
    min_wait_s: float
    """Before the first retry; doubles with each."""
    max_wait_s: float
    """Bound of the doubling. What a server asks for with ``Retry-After`` is not shortened."""
    timeout_s: float
    """Of one attempt, to its last byte."""
    deadline_s: float
    """Of all attempts and the waits between them."""


class Fault(Exception):
    """One attempt failed.

    Args:
        reason: in one line, free of secrets.
        transient: another attempt may succeed.
        wait_s: what the server asks to wait, seconds.
        context_length: the conversation is too long.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool,
        wait_s: float | None = None,
        context_length: bool = False,
    ) -> None:
        self.reason = reason
        self.transient = transient
        self.wait_s = wait_s
        self.context_length = context_length
        super().__init__(reason)


@frozen
class Redactor:
    """Makes a server's words fit for an error: without the key, on one line, and short."""

    _key: str | None = field(default=None, repr=False)

    def __call__(self, text: str) -> str:
        """The text, cleaned."""
        if self._key:
            text = text.replace(self._key, "***")
        text = " ".join(text.split())
        return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."


def backoff(policy: RetryPolicy, retry: int, rng: random.Random) -> float:
    """Seconds before the retry with this 0-based number: the doubled wait, less up to half of it.

    The spread keeps the many episodes that one overload has hit from coming back together.
    """
    wait = min(policy.min_wait_s * 2.0 ** min(retry, 60), policy.max_wait_s)
    return wait * (1 - 0.5 * rng.random())


async def persist(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    where: str,
    rng: random.Random,
    monotonic: Callable[[], float] = time.perf_counter,
) -> T:
    """The first answer that an attempt gives.

    Args:
        attempt: one attempt; raises `Fault`. It is cancelled after `timeout_s`.
        where: who is asked, for the error.
        rng: the jitter.

    Raises:
        ContextLengthError: the conversation is too long.
        LLMError: with `transient` set, every attempt failed in a way that may pass; else, one
            failed for good.
    """
    started = monotonic()
    reasons: list[str] = []
    while True:
        elapsed = monotonic() - started
        allowed = max(0.0, min(policy.timeout_s, policy.deadline_s - elapsed))
        try:
            async with asyncio.timeout(allowed):
                return await attempt()
        except Fault as caught:
            fault = caught
        except TimeoutError:
            fault = Fault(f"no answer within {allowed:.3g} s", transient=True)
        # Raised out here, so that no SDK's error, with headers in it, hangs on as the context.
        reasons.append(fault.reason)
        _give_up_for_good(fault, where)
        wait = _wait(fault, policy, len(reasons) - 1, rng)
        elapsed = monotonic() - started
        if len(reasons) > policy.max_retries or elapsed + wait >= policy.deadline_s:
            raise LLMError(_exhausted(where, reasons, elapsed, wait, policy), transient=True)
        await asyncio.sleep(wait)


def _wait(fault: Fault, policy: RetryPolicy, retry: int, rng: random.Random) -> float:
    """Seconds to wait: never less than the server asks for, nor than the backoff, and spread."""
    own = backoff(policy, retry, rng)
    if fault.wait_s is None:
        return own
    return max(own, fault.wait_s + policy.min_wait_s * rng.random())


def _give_up_for_good(fault: Fault, where: str) -> None:
    if fault.context_length:
        raise ContextLengthError(f"{where}: {fault.reason}")
    if not fault.transient:
        raise LLMError(f"{where}: {fault.reason}")


def _exhausted(
    where: str, reasons: list[str], elapsed: float, wait: float, policy: RetryPolicy
) -> str:
    counted = [(reason, len(list(same))) for reason, same in groupby(reasons)]
    tried = "; then ".join(r if n == 1 else f"{n} times {r}" for r, n in counted)
    attempts = "1 attempt" if len(reasons) == 1 else f"{len(reasons)} attempts"
    text = f"no answer from {where} after {attempts} in {elapsed:.1f} s: {tried}"
    if len(reasons) <= policy.max_retries:
        text += f"; a wait of {wait:.3g} s would pass the deadline of {policy.deadline_s:g} s"
    return text


__all__ = ["Fault", "Redactor", "RetryPolicy", "backoff", "persist"]
