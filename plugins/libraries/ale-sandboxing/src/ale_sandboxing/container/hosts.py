"""Which hosts an egress proxy lets a container reach, and which addresses a name may lead to.

A name is looked up by this machine, and whoever answers for it chooses the address. So an address
that means something else here than in the world is not reached by a name: this machine's own, those
of its link, and those at which clouds answer questions about a machine.
"""

import ipaddress
from collections.abc import Collection, Sequence
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)
"""Beside the link-local ones: of Alibaba, Azure, Oracle, and Amazon with IPv6."""
_TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")
"""IPv6 addresses whose last four bytes are one of IPv4."""


def is_address(host: str) -> bool:
    """Is it an address, and not a name?"""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _meanings(address: str) -> list[Address]:
    """An address, and the IPv4 addresses that it stands for."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.version == 4:
        return [found]
    held = [found.ipv4_mapped, found.sixtofour]
    if any(found in network for network in (*_TRANSLATED, _COMPATIBLE)):
        held.append(ipaddress.IPv4Address(int(found) & 0xFFFFFFFF))
    return [found, *(one for one in held if one is not None)]


def leads_inside(address: str, own: Collection[Address] = ()) -> bool:
    """Is it this machine's own, link-local, or of a service about this machine?

    Args:
        own: further addresses of this machine's.
    """
    return any(
        one.is_loopback
        or one.is_link_local
        or one.is_unspecified
        or one.is_multicast
        or one in _METADATA
        or one in own
        for one in _meanings(address)
    )


def own_addresses() -> frozenset[Address]:
    """The addresses of this machine's interfaces, such as the gateway of a container's bridge."""
    found: set[Address] = set()
    last = ""
    for line in _lines("/proc/net/fib_trie"):
        if "|-- " in line:
            last = line.rpartition("|-- ")[2]
        elif line.endswith("/32 host LOCAL"):
            found.add(ipaddress.IPv4Address(last))
    for line in _lines("/proc/net/if_inet6"):
        found.add(ipaddress.IPv6Address(int(line.split()[0], 16)))
    return frozenset(found)


def _lines(path: str) -> Sequence[str]:
    try:
        return Path(path).read_text().splitlines()
    except FileNotFoundError:  # a kernel without this version of the protocol
        return ()


class AllowedHosts:
    """Which hosts may be reached: names, ``*.name`` for those below one, addresses, networks.

    Args:
        listed: None lets everything pass.
    """

    def __init__(self, listed: Sequence[str] | None) -> None:
        self._all = listed is None
        self._names: set[str] = set()
        self._below: list[str] = []
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in listed or ():
            self._add(entry.strip().lower().strip("[]").rstrip("."))

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry))
        except ValueError:
            if entry.startswith("*."):
                self._below.append(entry[1:])
            else:
                self._names.add(entry)

    def allow(self, host: str) -> bool:
        """May this host be asked for?"""
        if self._all:
            return True
        name = host.lower().rstrip(".")
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return name in self._names or name.endswith(tuple(self._below))
        return any(address in network for network in self._networks)

    def allow_address(self, address: str, own: Collection[Address] = ()) -> bool:
        """May an address be connected to, which a host that is allowed has?

        An address that `leads_inside` has to be listed itself: a network around it is not enough.
        """
        if not leads_inside(address, own):
            return True
        alone = ipaddress.ip_network(ipaddress.ip_address(address.partition("%")[0]))
        return alone in self._networks
