"""What leaves a sandbox is written down with the episode, and shown as text."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ale_sandboxing.container_testing.images import DEBIAN

from .harbor_tasks import skip_without

HOME = "127.0.0.1"
FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "ok"}}]}
SAY = r"""python3 - <<'END'
import socket
for line in LINES:
    proxy = socket.create_connection(("127.0.0.1", 3128), 10)
    proxy.sendall(line.encode() + b"\r\n\r\n")
    while proxy.recv(1 << 16):
        pass
END
touch done
"""
TASKS = """\
import ale
from ale.types import Constraints

@ale.tasks
def networked(*, network: bool = False, hosts: tuple[str, ...] = ()) -> list[ale.Task]:
    \"\"\"One task with a network.\"\"\"
    graded = ale.CriterionSpec(type="command_exit_code", options={"command": "test -e done"})
    given = Constraints(network=network, allowed_hosts=hosts)
    return [ale.Task(id="t", goal="Ask.", criteria=(graded,), constraints=given)]
"""


class Answer(BaseHTTPRequestHandler):
    """Answers everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2000")
        self.end_headers()
        self.wfile.write(b"x" * 2000)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer((HOME, 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def ran(workshop: Any, sandbox: dict[str, Any], command: str, **tasks: Any) -> tuple[Any, str]:
    """The ledger of an episode, and how it is shown."""
    workshop.write("mine.py", TASKS)
    workshop.scripted(
        {"default": [{"shell": command}, FINISH]},
        plugins=["mine.py"],
        tasks={"type": "networked", **tasks},
        sandbox=sandbox,
        run={"rollouts": 1},
    )
    workshop.succeeds("run", "run.yaml")
    (episode,) = workshop.episodes().values()
    assert episode["reward"] == 1.0, episode
    shown = workshop.succeeds("show", str(workshop.run), episode["id"]).out
    return episode["metadata"].get("egress"), shown


@pytest.mark.parametrize("engine", ["docker", pytest.param("podman", marks=pytest.mark.long)])
def test_what_passes_an_allow_list_and_what_does_not(workshop: Any, engine: str, port: int) -> None:
    skip_without(engine)
    hostile = "CONNECT \x1bevil<script>.example:443 HTTP/1.1"
    lines = [f"GET http://{HOME}:{port}/ HTTP/1.1", "CONNECT evil.example:443 HTTP/1.1", hostile]
    command = SAY.replace("LINES", repr(lines))
    sandbox = {"type": engine, "image": DEBIAN}
    kept, shown = ran(workshop, sandbox, command, hosts=[HOME])
    passed, refused, strange = kept["rows"]
    assert (passed["host"], passed["port"], passed["address"]) == (HOME, port, HOME)
    assert (passed["outcome"], passed["connections"]) == ("passed", 1)
    assert passed["received"] > 2000
    assert (refused["host"], refused["port"], refused["outcome"]) == (
        "evil.example",
        443,
        "refused",
    )
    assert "<script>" in strange["host"]
    assert kept["unrecorded"] == ""
    assert "egress    1 host passed, 2 hosts refused" in shown
    assert f"passed    {HOME}:{port} at {HOME}  1 x" in shown
    assert "refused   evil.example:443  1 x  evil.example is not one of" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("engine", ["docker", "bubblewrap"])
def test_without_a_network_nothing_leaves(workshop: Any, engine: str) -> None:
    skip_without(engine)
    sandbox = {"type": engine, **({"image": DEBIAN} if engine == "docker" else {})}
    kept, shown = ran(workshop, sandbox, "touch done")
    assert kept == {"rows": [], "unrecorded": ""}
    assert "egress    none: nothing left the sandbox" in shown


@pytest.mark.parametrize("engine", ["docker", "bubblewrap"])
def test_a_whole_network_is_not_shown_as_silence(workshop: Any, engine: str) -> None:
    skip_without(engine)
    sandbox = {"type": engine, **({"image": DEBIAN} if engine == "docker" else {})}
    kept, shown = ran(workshop, sandbox, "touch done", network=True)
    assert kept["rows"] == []
    assert "egress    not recorded: what passed" in shown
    assert "whole network" in shown or "host's network" in shown


def test_a_backend_that_sees_nothing_says_so(workshop: Any) -> None:
    local = {"type": "local", "root": str(workshop.space)}
    kept, shown = ran(workshop, local, "touch done", network=True)
    assert kept is None
    assert "egress    not recorded by local" in shown
