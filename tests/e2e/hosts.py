"""Hosts on this machine: network namespaces with addresses of their own, joined by a bridge."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from attrs import frozen

from ale.testing.waiting import wait_for

NETWORK = "10.77.0"
INTERFACE = "eth0"
"""Of each host."""
SERVERS_KEY = "SERVERS_KEY"
"""The variable with the servers' key."""


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


@contextmanager
def servers_on(workshop: Any, others: Sequence[Host]) -> Iterator[None]:
    """A server of `serve.yaml` on each host, in the folder `registry`; none of them sees `runs`."""
    runs = workshop.folder / "runs"
    runs.mkdir(exist_ok=True)
    serve = ("ale", "serve", "--config", "serve.yaml", "--register", "registry", "--port", "0")
    serve += ("--api-key-env", SERVERS_KEY)  # required for addresses that others can reach
    workshop.environ[SERVERS_KEY] = "a key"
    processes = [
        subprocess.Popen(
            host.command(sys.executable, "-m", *serve, "--host", host.address, hides=str(runs)),
            cwd=workshop.folder,
            env=workshop.environ,
            stdout=subprocess.DEVNULL,
        )
        for host in others
    ]
    try:

        def registered() -> bool:
            assert all(process.poll() is None for process in processes)
            return len([*(workshop.folder / "registry").glob("*.json")]) == len(others)

        wait_for(registered, "the servers' start")
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
