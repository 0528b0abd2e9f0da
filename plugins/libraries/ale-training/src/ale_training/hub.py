"""Models by name: a folder, or a name on the Hugging Face hub, which may be unreachable."""

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from ale.errors import InputError, nearest

EXPECTED = "a folder with config.json, weights and tokenizer.json, or a name on the hub"
CHECK_S = 10.0
"""Seconds for the request that asks whether the hub can be reached."""


def only_local(name: str, *, path: str) -> bool:
    """Whether a model has to be read without the hub: the value for ``local_files_only``.

    The hub's client retries an unreachable hub for half a minute; here it is asked only once.

    Args:
        name: a folder, or a name on the hub.
        path: where the config names it.

    Raises:
        InputError: the hub can't be reached, and the model is not in its cache on this machine.
    """
    from huggingface_hub import constants, try_to_load_from_cache

    if Path(name).expanduser().exists() or not is_hub_name(name):
        return True
    reason = "HF_HUB_OFFLINE is set"
    if not constants.is_offline_mode():
        reason = _unreachable(constants.ENDPOINT)
    if not reason:
        return False
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return True
    where = f"the hub's cache, {constants.HF_HUB_CACHE}, does not have it"
    raise unloadable(name, f"{where}, and {reason}", path=path)


def folder_of(name: str) -> Path:
    """The folder with the files of a model that has been loaded: its own, or the hub's cache's."""
    from huggingface_hub import try_to_load_from_cache

    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    return Path(str(try_to_load_from_cache(name, "config.json"))).parent


def _unreachable(endpoint: str) -> str:
    """Why no request reaches the hub; empty if one does, whatever the answer."""
    try:
        urllib.request.urlopen(endpoint, timeout=CHECK_S).close()  # noqa: S310 - the hub
    except urllib.error.HTTPError:
        return ""
    except OSError as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, ssl.SSLError):
            return ""  # the hub's client may have other certificates
        return f"{endpoint} can't be reached ({getattr(cause, 'strerror', None) or cause})"
    return ""


def is_hub_name(name: str) -> bool:
    """Whether `name` can be a name on the hub: ``MODEL`` or ``OWNER/MODEL``."""
    return name.count("/") <= 1 and not name.startswith((".", "/", "~"))


def unloadable(name: str, reason: str, *, path: str, hint: str | None = None) -> InputError:
    """The error for a model that can't be loaded, with a remedy.

    Args:
        reason: what the system or the library says.
        path: where the config names it.
    """
    folder = Path(name).expanduser().absolute()
    if not folder.exists():
        siblings = sorted(each.name for each in folder.parent.glob("*/"))
        hint = nearest(folder.name, siblings)
        if is_hub_name(name):
            hint = hint or f"where there is a network: hf download {name}"
            reason = f"there is no folder {folder}; {reason}"
        else:
            reason = f"there is no folder {folder}"
    message = f"{name} can't be loaded: {reason}"
    return InputError.of(message, path=path, expected=EXPECTED, hint=hint)
