"""When a server of a launch counts as ready."""

import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import ale_launch.ready
from ale_launch.ready import answers

READY = Path(ale_launch.ready.__file__)


def test_a_port_that_speaks_no_http_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\0\0\x12\4\0\0\n\n")

        serving = threading.Thread(target=serve)
        serving.start()
        assert not answers(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        serving.join()


def ready(seconds: str, url: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", str(READY), seconds, url, "--", "echo", "begun"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_begins_once_the_address_answers_without_an_error() -> None:
    statuses = [503, 404, 200]
    left = iter(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(next(left))
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        done = ready("60", f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
        serving.join()
    assert (done.returncode, done.stdout) == (0, "begun\n")
    assert next(left, None) is None, "each of them was asked for"


def test_an_address_that_never_answers_is_named_and_nothing_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
    done = ready("0", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{url} has not answered within 0 s; see its server's log" in done.stderr
