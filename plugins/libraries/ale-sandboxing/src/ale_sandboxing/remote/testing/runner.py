"""What runs inside a sandbox of the fake service: starts commands, reads and writes files.

A connection is one request: a line of JSON, then bytes. A command is never ended by the loss of its
connection, just as in a cluster.
"""

import contextlib
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO


def main(listening: str) -> None:
    """Answer requests for ever."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{listening}.new")
    server.listen(64)
    Path(f"{listening}.new").rename(listening)  # whoever sees it can connect
    while True:
        connection, _ = server.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Answer one request."""
    stream: Any
    with contextlib.suppress(OSError), connection, connection.makefile("rwb") as stream:
        request = json.loads(stream.readline())
        {"exec": execute, "read": read, "write": write}[request["do"]](request, stream)


def execute(request: dict[str, Any], stream: BinaryIO) -> None:
    """Run a command, and send what it prints."""

    def limit() -> None:
        if request["memory"]:
            resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))

    try:
        process = subprocess.Popen(
            request["argv"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=limit,
            start_new_session=True,
        )
    except OSError as error:
        send(stream, 3, f"can't start {request['argv'][0]}: {error}".encode())
        return
    assert process.stdout is not None
    assert process.stderr is not None
    lock = threading.Lock()

    def copy(number: int, pipe: BinaryIO) -> None:
        while data := os.read(pipe.fileno(), 1 << 16):
            with lock, contextlib.suppress(OSError):
                send(stream, number, data)

    copies = [
        threading.Thread(target=copy, args=(number, pipe), daemon=True)
        for number, pipe in ((1, process.stdout), (2, process.stderr))
    ]
    for each in copies:
        each.start()
    code = process.wait()
    for each in copies:  # like a container runtime: until nobody holds them open
        each.join()
    process.stdout.close()
    process.stderr.close()
    send(stream, 0, struct.pack(">i", 128 - code if code < 0 else code))


def send(stream: BinaryIO, kind: int, data: bytes) -> None:
    """Send one message."""
    stream.write(struct.pack(">BI", kind, len(data)) + data)
    stream.flush()


def read(request: dict[str, Any], stream: BinaryIO) -> None:
    """Send the bytes of a file."""
    path = Path(request["path"])
    try:
        send(stream, 1, path.read_bytes())
    except OSError as error:
        send(stream, 3, type(error).__name__.encode())


def write(request: dict[str, Any], stream: BinaryIO) -> None:
    """Write a file."""
    data = stream.read(request["size"])
    try:
        Path(request["path"]).write_bytes(data)
        send(stream, 1, b"")
    except OSError as error:
        send(stream, 3, type(error).__name__.encode())


if __name__ == "__main__":
    main(sys.argv[1])
