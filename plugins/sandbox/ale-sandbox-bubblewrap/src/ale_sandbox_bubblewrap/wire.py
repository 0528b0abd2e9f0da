"""Messages and descriptors between the host process, the fork server and its supervisors.

Sockets of type SEQPACKET carry one JSON object each; what is too long for a packet travels as a
file in memory. Standard library only.
"""

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

_INLINE = 32 << 10
_PACKET = 64 << 10
_MOST_DESCRIPTORS = 16
_ELSEWHERE = b"\0"
"""A packet of this one byte: the message is in the last descriptor."""


def text_of(data: bytes) -> str:
    """Any bytes as text that JSON can carry."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """What `text_of` was given."""
    return text.encode("utf-8", "surrogateescape")


def send(sock: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message. The caller keeps its descriptors.

    Raises:
        BlockingIOError: a non-blocking socket is full.
        OSError: the other end is gone.
    """
    data = json.dumps(message).encode("ascii")
    if len(data) <= _INLINE:
        _send(sock, data, descriptors)
        return
    file = os.memfd_create("message")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        _send(sock, _ELSEWHERE, [*descriptors, file])
    finally:
        os.close(file)


def _send(sock: socket.socket, data: bytes, descriptors: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    sock.sendmsg([data], rights if descriptors else [], socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One message and its descriptors, which are not inherited; None at the end.

    Raises:
        BlockingIOError: a non-blocking socket has nothing.
    """
    ancillary = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array.array("i").itemsize)
    try:
        data, rights, _, _ = sock.recvmsg(_PACKET, ancillary, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not data:
        return None
    descriptors = array.array("i")
    for _, _, payload in rights:
        descriptors.frombytes(payload)
    found = list(descriptors)
    if data == _ELSEWHERE:
        with os.fdopen(found.pop(), "rb") as file:
            file.seek(0)
            data = file.read()
    message: dict[str, Any] = json.loads(data)
    return message, found
