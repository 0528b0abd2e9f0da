"""Where requests have credentials: in headers, in the query, in fields of the body."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

NAMED = ("Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Ocp-Apim-Subscription-Key")
"""Headers with the key of whoever asks, as OpenAI, Anthropic, Azure, Google have them."""
IN_QUERY = ("key", "api_key", "api-key", "apikey", "subscription-key")
_WORDS = re.compile(
    r"(?:^|[^a-z])(?:auth|authorization|cookie|credentials?|keys?|passw(?:or)?d|secret|"
    r"sig|signature|tokens?|apikey|bearer|code|jwt)(?:$|[^a-z])|authtoken|accesskey|accesstoken"
)
"""Names of what is masked, in lower case: more than is secret, since masking harms nobody."""
_SCHEME = re.compile(r"(?:bearer|basic|token|apikey|api-key|key|digest)\s+", re.IGNORECASE)
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NOT_SECRET = re.compile(
    r"(?:max|min|num|n|stop|bos|eos|pad|thinking|budget)[_a-z]*tokens?(?:_ids?)?$"
)


def keys_of(request: web.Request) -> tuple[str, ...]:
    """The keys by which requests of one caller are known."""
    found = (bare(request.headers.get(name, "")) for name in NAMED)
    query = (request.query.get(name, "").strip() for name in IN_QUERY)
    return tuple(filter(None, (*found, *query)))


def secrets_of(request: web.Request) -> frozenset[str]:
    """All values of a request's headers and query that may be credentials, to be masked."""
    return frozenset(filter(None, (*keys_of(request), *_named_so(request))))


def _named_so(request: web.Request) -> Iterator[str]:
    for name, value in request.headers.items():
        if name == "Cookie":
            yield from (part.partition("=")[2].strip() for part in value.split(";"))
        elif is_credential(name):
            yield bare(value)
    for name, value in parse_qsl(request.query_string):
        if is_credential(name):
            yield value.strip()


def is_credential(name: str) -> bool:
    """Whether what has this name may be a credential: ``x-goog-api-key``, ``accessToken``."""
    plain = _HUMPS.sub("_", name).lower()
    return bool(_WORDS.search(plain)) and not _NOT_SECRET.fullmatch(plain)


def without_credentials(value: Any) -> Any:
    """Plain values without the entries that may be credentials by their names."""
    if isinstance(value, dict):
        return {
            name: without_credentials(child)
            for name, child in value.items()
            if not is_credential(name)
        }
    return [without_credentials(child) for child in value] if isinstance(value, list) else value


def bare(value: str) -> str:
    """Without its scheme, such as ``Bearer``."""
    return _SCHEME.sub("", value.strip(), count=1).strip()
