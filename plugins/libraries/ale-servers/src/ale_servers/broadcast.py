"""Weights that a trainer sends to all its servers at once, through torch.distributed.

A reader is a process that needs the weights: a server, or each worker of a server program. It asks
the trainer over a connection of its own, with a line of JSON for each request: to ``check`` that
the trainer has a version, to ``prepare`` for it, and to ``read`` it. When all who have prepared
want to read, the trainer tells each its rank in a group, in which it then broadcasts one tensor
after another. A group is used again as long as its readers stay the same.

Only PyTorch and the standard library are imported: a server program whose environment lacks `ale`
gets a copy of this module. Who only checks needs no PyTorch.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

TRANSFER_S = 30.0
"""Longest time for a piece of a tensor, and for making a group. Gloo may notice only by this that a
reader which was to pass a tensor on has left."""
_PIECE = 8 << 20
"""Bytes that are sent at once: gloo takes twice as long for larger pieces."""
_CONNECT_S = 10.0
_WAIT_S = 300.0
"""Longest wait for a turn: the trainer may be sending to others."""
_BLOCKING = "TORCH_NCCL_BLOCKING_WAIT"


class OtherWeightsError(Exception):
    """The trainer does not have this version (any more)."""


class Reader:
    """A process's connection to a trainer, and its place in the group.

    Args:
        place: the fields of a `records.Broadcast`.
    """

    def __init__(self, place: Mapping[str, Any]) -> None:
        self.place = dict(place)
        self._connection: socket.socket | None = None
        self._lines: Any = None
        self._number = 0
        self._group: Any = None

    def serves(self, place: Mapping[str, Any]) -> bool:
        """Is this the connection to the same trainer?"""
        return all(self.place[name] == place[name] for name in ("host", "port", "key"))

    def ask(self, verb: str, digest: str) -> dict[str, Any]:
        """The trainer's answer to ``check``, ``prepare`` or ``read``.

        Raises:
            OtherWeightsError: it does not have these weights.
            OSError: it can't be reached.
        """
        try:
            if self._connection is None:
                self._connect()
            assert self._connection is not None
            asked = {"key": self.place["key"], "verb": verb, "digest": digest}
            self._connection.sendall(json.dumps(asked).encode() + b"\n")
            line = self._lines.readline()
            if not line:
                raise ConnectionError("it has closed the connection")
        except OSError as error:
            self.close()
            where = f"{self.place['host']}:{self.place['port']}"
            raise OSError(f"weights can't be had from the trainer at {where}: {error}") from error
        answer: dict[str, Any] = json.loads(line)
        if refusal := answer.get("refusal"):
            raise OtherWeightsError(refusal)
        return answer

    def _connect(self) -> None:
        where = (self.place["host"], self.place["port"])
        self._connection = socket.create_connection(where, timeout=_CONNECT_S)
        self._connection.settimeout(_WAIT_S)
        self._lines = self._connection.makefile("rb")

    def read(self, digest: str, parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
        """Names and tensors, as they arrive; for NCCL in the memory of the present GPU.

        Args:
            digest: of the version.
            parts: the fields of each `records.Part`, in the order in which they are sent.

        Raises:
            OtherWeightsError: the trainer does not have these weights (any more).
            OSError: a transfer failed. What has arrived before must not be used.
        """
        import torch

        answer = self.ask("read", digest)
        device = "cuda" if self.place["backend"] == "nccl" else "cpu"
        try:
            self._join(answer)
            for part in parts:
                dtype = getattr(torch, part["dtype"].removeprefix("torch."))
                tensor = torch.empty(tuple(part["shape"]), dtype=dtype, device=device)
                send(self._group, tensor)
                yield part["name"], tensor
        except BaseException:
            self.close()  # the others of the group notice it too
            raise

    def _join(self, answer: Mapping[str, Any]) -> None:
        if self._number == answer["group"]:
            return
        assert self._connection is not None
        self._group = None
        host, port = self.place["host"], self.place["store"]
        with _failures():
            store = distributed().TCPStore(host, port, timeout=timedelta(seconds=TRANSFER_S))
        address = self._connection.getsockname()[0]
        rank, size = answer["rank"], answer["size"]
        self._group = group(self.place["backend"], store, answer["group"], rank, size, address)
        self._number = answer["group"]

    def close(self) -> None:
        """End the connection and leave the group. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._lines.close()
            connection.close()
        left, self._group, self._number = self._group, None, 0
        if left is not None:
            leave(left)


def distributed() -> Any:
    """The module torch.distributed, whose types lack some of what is used here."""
    import torch.distributed

    return torch.distributed


def group(backend: str, store: Any, number: int, rank: int, size: int, address: str) -> Any:
    """A process group of torch.distributed beside those that the process may have.

    Args:
        backend: gloo or nccl.
        store: where its members find each other.
        number: the group's.
        rank: of this process; the trainer's is 0.
        size: number of members.
        address: of this machine, by which the other members reach it; for gloo.

    Raises:
        OSError: a member is missing, or can't be reached.
    """
    own = distributed().PrefixStore(f"group-{number}", store)
    limit = timedelta(seconds=TRANSFER_S)
    with _failures():
        if backend == "nccl":
            nccl = distributed().ProcessGroupNCCL
            options = nccl.Options()
            options._timeout = limit
            with _blocking():
                return nccl(own, rank, size, options)
        gloo = distributed().ProcessGroupGloo
        options = gloo._Options()
        options._timeout = limit
        options._devices = [gloo.create_device(hostname=address)]
        return gloo(own, rank, size, options)


def send(members: Any, tensor: Any) -> None:
    """Broadcast a contiguous tensor from rank 0; the others' is overwritten.

    Raises:
        OSError: a member failed, or takes too long.
    """
    if not tensor.numel():
        return
    import torch

    options = distributed().BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    with _failures():
        for piece in tensor.view(-1).view(torch.uint8).split(_PIECE):
            members.broadcast([piece], options).wait()


def leave(members: Any) -> None:
    """End this process's part in a group: transfers of the other members fail."""
    with contextlib.suppress(RuntimeError):
        members.abort()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # torch.distributed's own errors are derived from it
        raise OSError(f"the transfer of weights failed: {error}") from error


@contextlib.contextmanager
def _blocking() -> Iterator[None]:
    """NCCL's `wait` raises where a member is lost. By default, the process is ended instead."""
    before = os.environ.get(_BLOCKING)
    os.environ[_BLOCKING] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_BLOCKING]
        else:
            os.environ[_BLOCKING] = before
