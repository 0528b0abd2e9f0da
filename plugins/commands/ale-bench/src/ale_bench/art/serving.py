"""Whether a model's server can be trained: does it speak the protocol of `ale serve`?"""

import http.client
import json
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from ale.errors import InputError

_STATUS_S = 10.0


def takes_weights(url: str) -> bool:
    """Does a server of `ale serve` or `ale engines` with a model that can be trained answer here?

    A server that can't be reached is none: the checks of the run say what is wrong with it.

    Args:
        url: of its API, with or without ``/v1``.

    Raises:
        InputError: this is no URL.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise InputError.of(f"{url!r} is no URL of a server", file="--base-url", expected="http://")
    request = urllib.request.Request(  # noqa: S310 - http or https
        url.rstrip("/").removesuffix("/v1") + "/ale/status",
        data=b"{}",
        headers={"Content-Type": "application/json"},
    )
    # As the client of the run: straight to the server, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_STATUS_S) as response:
            return "digest" in _answer(response.read(1 << 20))
    except urllib.error.HTTPError as error:
        with error:
            # It asks for a key, which the run has: `--set llm.api_key_env=VARIABLE`.
            return _answer(error.read(1 << 20)).get("kind") == "unauthorized"
    except (OSError, http.client.HTTPException):
        return False


def _answer(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
