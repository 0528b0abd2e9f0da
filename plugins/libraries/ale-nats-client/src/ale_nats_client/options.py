"""Options: how a NATS server is reached."""

from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from ale.plugin import doc


def _no_password(_: object, __: object, value: str) -> None:
    for url in value.split(","):
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname:
            raise ValueError(f"expected nats://HOST:PORT or tls://HOST:PORT, found {url!r}")
        if parts.username is not None:
            raise ValueError(
                "a URL must contain no user or password: name variables by user_env, "
                "password_env or token_env"
            )


def _with_certificate(options: "ServerOptions", _: object, value: Path | None) -> None:
    if value is not None and options.tls_certificate is None:
        raise ValueError("tls_key is the key of tls_certificate, which is not set")


@frozen(kw_only=True)
class ServerOptions:
    """How a NATS server is reached."""

    url: str = field(
        default="nats://127.0.0.1:4222",
        validator=_no_password,
        metadata=doc("URL of the server; for a cluster, several URLs separated by commas."),
    )
    credentials: Path | None = field(
        default=None, metadata=doc("A .creds file with a user's JWT and key (nsc makes it).")
    )
    user_env: str | None = field(
        default=None, metadata=doc("Name of the environment variable that holds the user.")
    )
    password_env: str | None = field(
        default=None, metadata=doc("Name of the environment variable that holds the password.")
    )
    token_env: str | None = field(
        default=None, metadata=doc("Name of the environment variable that holds a token.")
    )
    tls_ca: Path | None = field(
        default=None,
        metadata=doc(
            "Certificates (PEM) that the server's certificate is checked against; default: the "
            "system's."
        ),
    )
    tls_certificate: Path | None = field(
        default=None, metadata=doc("This client's own certificate (PEM).")
    )
    tls_key: Path | None = field(
        default=None,
        validator=_with_certificate,
        metadata=doc(
            "Key (PEM) of this client's certificate; default: in the file of the certificate."
        ),
    )
