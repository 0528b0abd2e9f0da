"""Whether an HTTP status and a server's message allow a retry."""

import email.utils
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import evolve, frozen

from ale.errors import ContextLengthError, LLMError, ToolsUnsupportedError
from ale_openai_wire import hints
from ale_openai_wire.retry import AttemptError, Redactor

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
_NO_TOOLS = re.compile(
    "|".join(
        (
            "enable-auto-tool-choice",  # vLLM
            "requires --jinja",  # llama.cpp
            # Ollama, LM Studio, OpenRouter, litellm, Hugging Face
            "(not support(ed)?|no endpoints found that support)[^.]{0,40}(tools?\\b|function.call)",
            "(tools?|tool.(use|calls?|calling)|function.calling)[^.]{0,40}not supported",
        )
    ),
    re.IGNORECASE,
)
_TRANSIENT = frozenset({408, 409, 425, 429})
_REFUSED = frozenset({429, 503})
"""Statuses that say that there are too many requests."""
_NO_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Sent with 429, but no wait helps."""


def status_error(
    status: int,
    text: str,
    headers: Mapping[str, str],
    *,
    redact: Redactor,
    key: str,
    clock: Callable[[], float],
    with_tools: bool = False,
) -> AttemptError:
    """The error for a status other than success.

    Args:
        text: the body.
        headers: of the answer; names in any case.
        key: how the caller names its key, for the message of a 401.
        clock: seconds since the epoch, for a ``Retry-After`` that is a date.
        with_tools: the request had tools.
    """
    if status == 401:
        # Not the server's message: some repeat a part of the key.
        return AttemptError(f"401: the server refused {key}", transient=False)
    body = _parse(text)
    reason = f"status {status}" + (f" ({redact(body.message)})" if body.message else "")
    kind = _kind(status, body, with_tools)
    if kind is not LLMError:
        hint = hints.TOO_LONG if kind is ContextLengthError else hints.NO_TOOLS
        return AttemptError(f"{reason}: {hint}", transient=False, kind=kind)
    passing = (status in _TRANSIENT or status >= 500) and body.code not in _NO_QUOTA_CODES
    refused = passing and status in _REFUSED
    return AttemptError(reason, transient=passing, wait_s=_wait(headers, clock), refused=refused)


def _kind(status: int, body: "_Body", with_tools: bool) -> type[LLMError]:
    if status in (400, 413, 422, 500) and body.too_long:
        return ContextLengthError
    if with_tools and status in (400, 404, 422, 500, 501) and _NO_TOOLS.search(body.message):
        return ToolsUnsupportedError
    return LLMError


def error_in(data: bytes) -> Any:
    """The ``error`` of a body that came with status 200, as gateways send it; None without one."""
    try:
        return msgspec.json.decode(data, type=_Sent).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class _Sent(msgspec.Struct):
    error: Any = None


def stream_error(error: Any, *, redact: Redactor) -> AttemptError:
    """The error for an ``error`` that came with status 200, in a stream or as a body.

    It is taken by its code; transient where it has none.
    """
    body = _of(error)
    status = int(body.code) if body.code.isdigit() else 500
    reason = f"an error in place of the answer ({redact(body.message or body.code)})"
    if body.too_long:
        reason = f"{reason}: {hints.TOO_LONG}"
        return AttemptError(reason, transient=False, kind=ContextLengthError)
    transient = status in _TRANSIENT or status >= 500
    return AttemptError(reason, transient=transient, refused=status in _REFUSED)


@frozen
class _Body:
    message: str
    code: str = ""
    kind: str = ""

    @property
    def too_long(self) -> bool:
        return _TOO_LONG.search(f"{self.code} {self.kind} {self.message}") is not None


def _parse(text: str) -> _Body:
    """The error in a body; the whole text if it has another form."""
    try:
        body = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _Body(text)
    found = _of(body.get("error", body) if isinstance(body, dict) else text)
    return found if found.message else evolve(found, message=text)


def _of(error: Any) -> _Body:
    if not isinstance(error, dict):
        return _Body(str(error))
    message, code, kind = (error.get(name) for name in ("message", "code", "type"))
    return _Body(*("" if part is None else str(part) for part in (message, code, kind)))


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
