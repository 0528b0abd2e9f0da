"""An address of this machine at which to listen, as users write it."""

import socket

from attrs import frozen

from ale.errors import AleError

ANY = "auto"
"""The host of an address that listens everywhere: each server connects to the address from which
the trainer has asked it."""
_MOST_PORT = 65535


@frozen
class Address:
    """Where to listen.

    Attributes:
        host: a name or an address of this machine, or `ANY`.
        port: 0 for a free one.
    """

    host: str
    port: int = 0

    @classmethod
    def read(cls, text: str) -> "Address":
        """An address from ``HOST``, ``HOST:PORT``, ``[IPV6]:PORT``, ``auto`` or ``auto:PORT``.

        Raises:
            ValueError: it is none.
        """
        host, colon, port = text.rpartition(":")
        if not colon or (":" in host and not host.endswith("]")):
            host, port = text, "0"
        host = host.removeprefix("[").removesuffix("]")
        if not host or "/" in host or not port.isdecimal() or int(port) > _MOST_PORT:
            raise ValueError(f"expected HOST, HOST:PORT, auto or auto:PORT, found {text!r}")
        return cls(host, int(port))

    def listen(self, what: str) -> socket.socket:
        """A socket that listens there.

        Args:
            what: what the address is for, in an error.

        Raises:
            AleError: the address is taken, or does not belong to this machine.
        """
        try:
            if self.host == ANY and socket.has_dualstack_ipv6():
                family = socket.AF_INET6
                return socket.create_server(("", self.port), family=family, dualstack_ipv6=True)
            if self.host == ANY:
                return socket.create_server(("", self.port))
            family = socket.getaddrinfo(self.host, self.port)[0][0]
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            where = f"port {self.port}" if self.host == ANY else f"{self.host}:{self.port}"
            reason = error.strerror or error
            raise AleError(f"{what} at {where}: {reason}") from error
