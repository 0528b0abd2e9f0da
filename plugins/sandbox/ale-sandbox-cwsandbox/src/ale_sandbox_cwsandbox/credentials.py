"""Keys, from the environment alone; no network is used, and no key is shown."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attrs import frozen

from ale.errors import NotUsableError
from ale_sandbox_cwsandbox.options import CwSandboxOptions

if TYPE_CHECKING:
    from cwsandbox import AuthHeaders, WandbAuth

OLD_KEY = "AVIATO_API_KEY"
OLD_ENTITY = "WANDB_ENTITY_NAME"
WANDB_KEY = "WANDB_API_KEY"


@frozen(kw_only=True)
class Found:
    """Which key is used."""

    kind: str
    variable: str
    notes: tuple[str, ...] = ()
    """About variables that have a newer name."""


def find(options: CwSandboxOptions, environ: Mapping[str, str]) -> Found:
    """The key to use.

    Raises:
        NotUsableError: there is none; the message is one line.
    """
    key = next((name for name in (options.api_key_env, OLD_KEY) if environ.get(name)), None)
    wandb = options.auth == "wandb" or (options.auth is None and key is None)
    if not wandb and key is not None:
        return Found(kind="api-key", variable=key, notes=_renamed(key, options.api_key_env))
    if not wandb:
        raise NotUsableError(f"cwsandbox: {options.api_key_env} is not set")
    # `wandb login` is asked for by name: its file may be there for other reasons.
    if options.auth is None and not environ.get(WANDB_KEY):
        raise NotUsableError(f"cwsandbox: neither {options.api_key_env} nor {WANDB_KEY} is set")
    if find_spec("wandb") is None:
        raise NotUsableError(
            "cwsandbox: a key of Weights & Biases needs the package wandb: "
            'pip install "cwsandbox[wandb]>=1.22,<2"'
        )
    old = not environ.get("WANDB_ENTITY")
    notes = _renamed(OLD_ENTITY, "WANDB_ENTITY") if old and environ.get(OLD_ENTITY) else ()
    return Found(kind="wandb", variable=WANDB_KEY, notes=notes)


def _renamed(used: str, name: str) -> tuple[str, ...]:
    return (f"key: {used} is the old name of {name}",) if used in (OLD_KEY, OLD_ENTITY) else ()


def auth_of(
    found: Found, options: CwSandboxOptions, environ: Mapping[str, str]
) -> "AuthHeaders | WandbAuth":
    """What the SDK is given."""
    from cwsandbox import AuthHeaders, WandbAuth

    if found.kind == "api-key":
        headers = {"Authorization": f"Bearer {environ[found.variable]}"}
        return AuthHeaders(headers=headers, strategy="api_key")
    entity = environ.get("WANDB_ENTITY") or environ.get(OLD_ENTITY)
    return WandbAuth(entity=entity or None, project=environ.get("WANDB_PROJECT"))
