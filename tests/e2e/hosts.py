"""Hosts on this machine: network namespaces with addresses of their own, joined by a bridge."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from attrs import frozen

NETWORK = "10.77.0"
INTERFACE = "eth0"
"""Of each host."""


@frozen
class Host:
    """A network namespace, as long as the process that holds it lives."""

    holder: int
    """Id of that process."""
    address: str

    def command(self, *argv: str, hides: str = "") -> list[str]:
        """A command that runs there.

        Args:
            hides: a folder that it shall not see: it finds an empty one in its place.
        """
        inside = ["nsenter", f"--net=/proc/{self.holder}/ns/net"]
        if hides:
            script = 'mount -t tmpfs none "$0" && exec "$@"'
            inside += ["unshare", "--mount", "sh", "-c", script, hides]
        return [*inside, *argv]


def obstacle() -> str | None:
    """Why hosts can't be made here."""
    if missing := [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]:
        return f"there is no {', '.join(missing)}"
    tried = ("unshare", "--net", "--mount", "ip", "link", "add", "name", "b", "type", "bridge")
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return done.stderr.strip() or None


@contextmanager
def hosts(n: int) -> Iterator[Sequence[Host]]:
    """Hosts that reach each other, and nothing else; the first one has the bridge."""
    with ExitStack() as holders:
        made = []
        for number in range(n):
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                stdout=subprocess.PIPE,
            )
            holders.callback(_end, holder)
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"\n"  # it is in its namespace
            made.append(Host(holder.pid, f"{NETWORK}.{number + 1}"))
        first, *others = made
        _ip(first, f"link add {INTERFACE} type bridge")
        _ip(first, f"addr add {first.address}/24 dev {INTERFACE}")
        for number, host in enumerate(others):
            _ip(first, f"link add port{number} type veth peer name {INTERFACE} netns {host.holder}")
            _ip(first, f"link set port{number} master {INTERFACE} up")
            _ip(host, f"addr add {host.address}/24 dev {INTERFACE}")
            _ip(host, f"link set {INTERFACE} up")
        for host in made:
            _ip(host, "link set lo up")
        _ip(first, f"link set {INTERFACE} up")
        yield made


def _ip(host: Host, arguments: str) -> None:
    subprocess.run(host.command("ip", *arguments.split()), check=True)


def _end(holder: "subprocess.Popen[bytes]") -> None:
    holder.kill()
    holder.communicate()
