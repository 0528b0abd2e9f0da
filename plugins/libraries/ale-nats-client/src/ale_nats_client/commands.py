"""The options of a server on a command line."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ale_nats_client.options import ServerOptions

F = TypeVar("F", bound=Callable[..., Any])

_FILES = ("credentials", "tls_ca", "tls_certificate", "tls_key")
_LOGIN = (*_FILES, "user_env", "password_env", "token_env")
"""The options of `ServerOptions` but for the URL, which is the command's own."""


def login_option(command: F) -> F:
    """Add ``--nats-login``: who this client is, with the names that a config has."""
    text = "Log in to NATS by it, such as user_env=NATS_USER or tls_ca=ca.pem; repeatable. Keys: "
    return click.option(
        "--nats-login", multiple=True, metavar="KEY=VALUE", help=f"{text}{', '.join(_LOGIN)}."
    )(command)


def arguments(options: "ServerOptions") -> list[str]:
    """The arguments of a command line that say the same, but for the URL."""
    values = [(name, getattr(options, name)) for name in _LOGIN]
    return [f"--nats-login={name}={value}" for name, value in values if value is not None]


def server_of(url: str, login: Sequence[str], path: str) -> Any:
    """The `ServerOptions` of a command line.

    Args:
        login: what ``--nats-login`` was given.
        path: the option that the URL is from.

    Raises:
        InputError: the URL is none, a key is unknown, or there is a key without its certificate.
    """
    # Late, as in all commands: for --help.
    from ale.errors import InputError
    from ale_nats_client.options import ServerOptions

    given: dict[str, Any] = {
        name: Path(value).resolve() if name in _FILES else value
        for name, value in _read(login).items()
    }
    try:
        return ServerOptions(url=url, **given)
    except ValueError as error:
        raise InputError.of(str(error), path=path) from None


def _read(login: Sequence[str]) -> Mapping[str, str]:
    from ale.errors import InputError, nearest

    found = {}
    for each in login:
        key, sign, value = each.partition("=")
        if key not in _LOGIN or not (sign and value):
            raise InputError.of(
                f"expected KEY=VALUE, found {each!r}",
                path="--nats-login",
                expected=f"one of {', '.join(_LOGIN)}",
                hint=nearest(key, _LOGIN),
            )
        found[key] = value
    return found
