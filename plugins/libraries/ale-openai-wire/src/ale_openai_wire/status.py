"""What an HTTP status and a server's words mean for the next attempt."""

import email.utils
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import evolve, frozen

from ale_openai_wire.retry import Fault, Redactor

_TOO_LONG = re.compile(
    "|".join(
        (
            "context_length_exceeded",  # OpenAI's code
            "exceed_context_size",  # llama.cpp's type
            "maximum (context|model|input) length",  # vLLM, SGLang, OpenAI
            "context (length|size|window)",  # SGLang, LM Studio, Ollama, llama.cpp, litellm
            "prompt is too long",  # Anthropic, by way of gateways
        )
    ),
    re.IGNORECASE,
)
_TRANSIENT = frozenset({408, 409, 425, 429})
_FOR_GOOD_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Given with 429, yet no wait helps."""


def status_fault(
    status: int,
    text: str,
    headers: Mapping[str, str],
    *,
    redact: Redactor,
    key: str,
    clock: Callable[[], float],
) -> Fault:
    """The fault that a status other than success is.

    Args:
        text: the body.
        headers: of the answer; names in any case.
        key: how the caller names its key, for the message of a 401.
        clock: seconds since the epoch, for a ``Retry-After`` that is a date.
    """
    if status == 401:
        # Not the server's words: some repeat a part of the key.
        return Fault(f"401: the server refused {key}", transient=False)
    said = _said(text)
    reason = f"status {status}" + (f" ({redact(said.message)})" if said.message else "")
    if status in (400, 413, 422, 500) and said.too_long:
        return Fault(reason, transient=False, context_length=True)
    passing = (status in _TRANSIENT or status >= 500) and said.code not in _FOR_GOOD_CODES
    return Fault(reason, transient=passing, wait_s=_wait(headers, clock))


def error_fault(error: Any, *, redact: Redactor) -> Fault:
    """The fault that an ``error`` inside a stream is: by its code, else one that may pass."""
    said = _of(error)
    status = int(said.code) if said.code.isdigit() else 500
    reason = f"an error in the stream ({redact(said.message or said.code)})"
    if said.too_long:
        return Fault(reason, transient=False, context_length=True)
    return Fault(reason, transient=status in _TRANSIENT or status >= 500)


@frozen
class _Said:
    message: str
    code: str = ""
    kind: str = ""

    @property
    def too_long(self) -> bool:
        return _TOO_LONG.search(f"{self.code} {self.kind} {self.message}") is not None


def _said(text: str) -> _Said:
    """What a body says; the whole of it where it is no error of the usual form."""
    try:
        body = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _Said(text)
    said = _of(body.get("error", body) if isinstance(body, dict) else text)
    return said if said.message else evolve(said, message=text)


def _of(error: Any) -> _Said:
    if not isinstance(error, dict):
        return _Said(str(error))
    message, code, kind = (error.get(name) for name in ("message", "code", "type"))
    return _Said(*("" if part is None else str(part) for part in (message, code, kind)))


def _wait(headers: Mapping[str, str], clock: Callable[[], float]) -> float | None:
    """Seconds that the server asks to wait: in milliseconds, in seconds or up to a date."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait = float(lower[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(0.0, wait) if math.isfinite(wait) else None
    try:
        until = email.utils.parsedate_to_datetime(lower["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, until.timestamp() - clock())


__all__ = ["error_fault", "status_fault"]
