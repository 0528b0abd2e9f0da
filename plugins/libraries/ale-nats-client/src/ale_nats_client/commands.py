"""The same options on a command line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ale.commands import PATH

if TYPE_CHECKING:
    from ale_nats_client.options import ServerOptions

F = TypeVar("F", bound=Callable[..., Any])


def server_options(prefix: str = "") -> Callable[[F], F]:
    """Add the options that say who this client is; the URL is the command's own.

    Args:
        prefix: of their names, with a hyphen at the end. The parameters have the names of
            `ServerOptions`.
    """

    def add(command: F) -> F:
        for name, argument, text in reversed(_OPTIONS):
            given = (f"--{prefix}{name}", name.replace("-", "_"))
            if argument is None:
                command = click.option(*given, type=PATH, help=text)(command)
            else:
                command = click.option(*given, metavar=argument, help=text)(command)
        return command

    return add


_OPTIONS = (
    ("credentials", None, "A .creds file."),
    ("user-env", "VARIABLE", "Environment variable with the user's name."),
    ("password-env", "VARIABLE", "Environment variable with the password."),
    ("token-env", "VARIABLE", "Environment variable with a token."),
    ("tls-ca", None, "Certificates of the authorities that may sign the server's certificate."),
    ("tls-certificate", None, "This client's own certificate."),
    ("tls-key", None, "Key of this client's certificate."),
)


def arguments(options: "ServerOptions", prefix: str = "") -> list[str]:
    """The arguments of a command line that say the same, but for the URL."""
    found = []
    for name, _, _ in _OPTIONS:
        value = getattr(options, name.replace("-", "_"))
        found += [] if value is None else [f"--{prefix}{name}", str(value)]
    return found


def server_of(url: str, given: Mapping[str, Any], path: str) -> Any:
    """The `ServerOptions` of a command line.

    Args:
        given: the parameters that `server_options` adds.
        path: the option that the URL is from.

    Raises:
        InputError: the URL is none, or there is a key without its certificate.
    """
    # Late, as in all commands: for --help.
    from ale.errors import InputError
    from ale_nats_client.options import ServerOptions

    paths = {name: value.resolve() for name, value in given.items() if isinstance(value, Path)}
    try:
        return ServerOptions(url=url, **{**given, **paths})
    except ValueError as error:
        raise InputError.of(str(error), path=path) from None
