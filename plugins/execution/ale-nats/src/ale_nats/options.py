"""Options: how a NATS server is reached, and those of the executor and the observer ``nats``."""

from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from ale.plugin import doc, ge, gt


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


@frozen(kw_only=True)
class ServerOptions:
    """How a NATS server is reached."""

    url: str = field(
        default="nats://127.0.0.1:4222",
        validator=_no_password,
        metadata=doc("URL of the server; of a cluster, several with commas between."),
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
        metadata=doc("Certificates (PEM) that the server's is checked by; default: the system's."),
    )
    tls_certificate: Path | None = field(
        default=None, metadata=doc("This client's own certificate (PEM).")
    )
    tls_key: Path | None = field(
        default=None, metadata=doc("Key (PEM) of this client's certificate.")
    )


@frozen(kw_only=True)
class NatsOptions(ServerOptions):
    """Episodes on workers over NATS JetStream."""

    labels: tuple[str, ...] = field(
        default=(), metadata=doc("Labels that a worker needs to take jobs of this run.")
    )
    lost_after_s: float = field(
        default=30.0,
        validator=ge(1.0),
        metadata=doc("Seconds without a sign of life until a worker's jobs are given to others."),
    )
    deliveries: int = field(
        default=5,
        validator=ge(1),
        metadata=doc("Times that a job is given to workers and lost, until its episode is broken."),
    )
    queue_limit: int = field(
        default=10_000,
        validator=ge(1),
        metadata=doc(
            "Most jobs of all runs that the server holds, set by the first run; a run waits while "
            "it is full."
        ),
    )
    give_up_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds without a connection to the server until the run ends."),
    )
    silence_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds without any worker after which this is reported, once."),
    )


@frozen(kw_only=True)
class EventOptions(ServerOptions):
    """The events of a run, published over NATS JetStream."""

    connect_timeout_s: float = field(
        default=5.0, validator=gt(0), metadata=doc("Seconds to reach the server.")
    )
    finish_timeout_s: float = field(
        default=30.0,
        validator=gt(0),
        metadata=doc("Seconds that the end of the run waits until every event is stored."),
    )
