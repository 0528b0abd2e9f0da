"""A server's address, and who may speak to it: one set of rules for all frameworks."""

import errno
import hmac
import ipaddress
import os
import socket
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from attrs import frozen

from ale.errors import AleError, InputError

HEAD_S = 20.0
"""Seconds within which the head of a connection's first request must have come."""
BODY_S = 120.0
"""Seconds within which a request's body must have come."""
MOST_BODY = 64 << 20
"""Most bytes of a body that is read whole, and of what it is inflated to."""
_JSON = "application/json"
_OF_FORMS = ("", "text/plain", "application/x-www-form-urlencoded")
"""Types of bodies that any page in a browser may send without asking, but for that of uploads."""
_OWN_SITES = ("same-origin", "none")
"""``Sec-Fetch-Site`` of a page of this server, and of an address that was typed in."""


def cannot_listen(host: str, port: int, error: OSError) -> AleError:
    """Why, and which of the options ``--host`` and ``--port`` helps."""
    unknown = isinstance(error, socket.gaierror)  # whose errno is not one of the system
    reason = os.strerror(error.errno) if error.errno and not unknown else str(error)
    other = unknown or error.errno == errno.EADDRNOTAVAIL
    remedy = "--host is an address of this machine" if other else "--port 0 takes a free port"
    return AleError(f"can't listen at {host}:{port}: {reason}; {remedy}")


def is_loopback(host: str) -> bool:
    """Does a server that listens at this name or address hear this machine alone?

    A name that can't be resolved does not.
    """
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host or "0.0.0.0", None)}  # noqa: S104
    except (OSError, UnicodeError):
        return False
    return all(_is_loopback_address(str(each)) for each in found)


def check_exposed(host: str, *, has_key: bool, option: str, harm: str) -> None:
    """Refuse to listen beyond loopback without a key.

    Args:
        option: which names the key, for the message.
        harm: what others could do without it.

    Raises:
        InputError: anyone who reaches the address could speak to the server.
    """
    if not has_key and not is_loopback(host):
        message = f"others than this machine could {harm} at {host}"
        hint = f"{option} VARIABLE: clients then need the key in it"
        raise InputError.of(message, path="--host", hint=hint)


def is_one_of(given: str, keys: Collection[str]) -> bool:
    """Is this one of the keys? A wrong one takes as long whatever it has in common with them.

    Args:
        given: of a header, where half of a surrogate pair stands for a byte that is no text.
    """
    said = given.encode("utf-8", "surrogateescape")
    return any([hmac.compare_digest(said, key.encode()) for key in keys])


@frozen
class Refused:
    """Why a request is not answered, and the status of HTTP that says so."""

    status: int
    message: str


@frozen
class Admission:
    """Which requests may come in, judged by their heads.

    A browser sends requests to this machine for any page that asks it to, and after a trick with
    names ("DNS rebinding") even lets the page read the answers. It says in each of them where the
    page is from, by which name it found the server, and what the body is; other programs need no
    browser and are kept out by a key alone.

    Attributes:
        names: that a request may name the server by, beside loopback's.
        exposed: it listens beyond loopback. It may then be named by any address, and by any name
            without a dot: nobody can have such a name lead here but who runs this network.
    """

    names: frozenset[str] = frozenset()
    exposed: bool = False

    @classmethod
    def at(cls, host: str, more: Collection[str] = ()) -> "Admission":
        """That of a server that listens at `host`, and may have `more` names."""
        names = {host, *more}
        if exposed := not is_loopback(host):
            names.add(socket.gethostname())
        return cls(frozenset(each.lower().rstrip(".") for each in names), exposed)

    def refusal(self, headers: Mapping[str, str], *, json: bool = True) -> Refused | None:
        """Why a request may not come in; None if it may.

        Args:
            headers: of the request, whatever the case of a name.
            json: a body must be JSON; else it must not be of a type that a page may send to any
                server without asking it, but for that of uploads.
        """
        authority = headers.get("Host", "")
        if refused := self.other_host(authority):
            return refused
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
        same = origin is None or urlsplit(origin).netloc.lower() == authority.lower()
        if not same or site.lower() not in _OWN_SITES:
            page = "another site" if origin is None else origin
            return Refused(403, f"a page of {page} may not send requests here")
        if headers.get("Content-Length", "0").strip() == "0" and "Transfer-Encoding" not in headers:
            return None
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != _JSON and (json or kind in _OF_FORMS):
            expected = f"expected Content-Type: {_JSON}"
            return Refused(415, f"{expected}, found {kind or 'none'}")
        return None

    def other_host(self, authority: str) -> Refused | None:
        """Why a server may not be named so: ``HOST``, ``HOST:PORT`` or ``[IPV6]:PORT``."""
        try:
            name = (urlsplit(f"//{authority}").hostname or "").rstrip(".")
        except ValueError:
            name = ""
        if not name:
            return Refused(400, "the request has no Host, or one that can't be read")
        if self._knows(name):
            return None
        hint = "--allow-host NAME lets a further name in"
        return Refused(421, f"this server is not {name}; {hint}")

    def _knows(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return self.exposed and "." not in name
        return self.exposed or _is_loopback_address(name)


def _is_loopback_address(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
