"""Certificates for an engine that is reached over TLS, where docker's own client looks for them."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen

from ale.errors import SandboxError


@frozen(kw_only=True)
class Certificates:
    """Files that prove to the engine who asks, and to who asks which engine it is."""

    authority: Path
    own: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For connections.

        Raises:
            SandboxError: a file is missing, or no certificate or key.
        """
        for path in (self.authority, self.own, self.key):
            if not path.is_file():
                raise SandboxError(f"DOCKER_TLS_VERIFY is set and {path} is missing")
        try:
            made = ssl.create_default_context(cafile=self.authority)
            made.load_cert_chain(self.own, self.key)
        except ssl.SSLError as error:
            raise SandboxError(f"certificates in {self.own.parent}: {error}") from error
        return made


def certificates(address: str, environ: Mapping[str, str]) -> Certificates | None:
    """For an address; None where it is reached without TLS."""
    if urlsplit(address).scheme != "tcp" or not environ.get("DOCKER_TLS_VERIFY"):
        return None
    named = environ.get("DOCKER_CERT_PATH")
    folder = Path(named) if named else Path.home() / ".docker"
    return Certificates(
        authority=folder / "ca.pem", own=folder / "cert.pem", key=folder / "key.pem"
    )
