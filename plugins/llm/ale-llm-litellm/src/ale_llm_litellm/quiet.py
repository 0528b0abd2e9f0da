"""Imports litellm without network requests, without reading ``.env`` and without its output."""

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_AT_IMPORT = {
    # Otherwise the import loads a .env file of the working directory into the environment
    "LITELLM_MODE": "PRODUCTION",
    # and asks GitHub and litellm.ai for prices, headers and news.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_AUTOROUTER_PRESETS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
}


@contextmanager
def _environment() -> Iterator[None]:
    """Set the variables that the user has not set, for the duration of the import."""
    added = [name for name in _AT_IMPORT if name not in os.environ]
    for name in added:
        os.environ[name] = _AT_IMPORT[name]
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def load() -> Any:
    """Import litellm, only once, as this takes some seconds."""
    with _environment():
        litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    if "LITELLM_LOG" not in os.environ:
        logging.getLogger("LiteLLM").setLevel(logging.ERROR)
    if hasattr(litellm, "telemetry"):  # older versions only
        litellm.telemetry = False
    return litellm
