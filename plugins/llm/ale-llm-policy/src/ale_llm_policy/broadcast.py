"""The weight channels `gloo` and `nccl`: the run sends each version to all servers at once."""

import contextlib
import json
import logging
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec
import torch
from attrs import define, field
from torch import Tensor

from ale.errors import AleError
from ale_llm_policy.pretrained import weights
from ale_servers.address import ANY, Address
from ale_servers.broadcast import TRANSFER_S, distributed, group, leave, send
from ale_servers.records import Broadcast, Part, Weights

log = logging.getLogger(__name__)

_LONGEST = 4096
"""Most bytes of a request."""
_GATHER_S = 10.0
"""Longest wait for readers that have prepared, once one of them wants to read."""


@define(eq=False)
class _Asker:
    """The other end of a `Reader`."""

    connection: socket.socket
    sending: threading.Lock = field(factory=threading.Lock)
    prepared: bool = False
    """For the present version, and it has not read it yet."""
    wants: bool = False
    """It waits for its turn to read."""

    def answer(self, **fields: Any) -> None:
        with self.sending, contextlib.suppress(OSError):  # its own thread notices that it left
            self.connection.sendall(json.dumps(fields).encode() + b"\n")


@define(eq=False, slots=False)
class BroadcastWeights:
    """The newest version of a run's weights, held in the processor's memory and sent from there."""

    _backend: Literal["gloo", "nccl"]
    """Of torch.distributed."""
    _device: torch.device
    """Where the run trains; NCCL sends from there."""
    _address: Address
    """Where servers ask for weights."""

    def __attrs_post_init__(self) -> None:
        self._place: Broadcast | None = None
        self._listener: socket.socket | None = None
        self._store: Any = None
        self._changed = threading.Condition()
        self._askers: set[_Asker] = set()
        self._digest = ""
        self._tensors: dict[str, Tensor] = {}
        self._members: tuple[_Asker, ...] = ()
        self._group: Any = None
        self._number = 0

    def obstacle(self, tensors: Mapping[str, Tensor]) -> str | None:
        """Why weights can't be sent from here."""
        if self._backend == "gloo":
            return None
        if self._device.type == "cuda" and distributed().is_nccl_available():
            return None
        return (
            "llm.weights_channel: nccl sends weights from the GPU on which the run trains, and "
            f"llm.device is '{self._device.type}'; expected: a GPU, or 'gloo'"
        )

    def publish(self, version: int, tensors: Mapping[str, Tensor]) -> Weights:
        """Copy the weights, and send them to whoever asks from now on.

        Raises:
            AleError: the address can't be had, or there is an `obstacle`.
        """
        if obstacle := self.obstacle(tensors):
            raise AleError(obstacle)
        copies = {
            name: each.detach().to("cpu", copy=True).contiguous() for name, each in tensors.items()
        }
        digest = weights.digest(copies)
        place = self._started()
        parts = tuple(
            Part(name=name, dtype=str(each.dtype), shape=tuple(each.shape))
            for name, each in copies.items()
        )
        sent = msgspec.structs.replace(place, parts=parts)
        with self._changed:
            self._digest, self._tensors = digest, copies
            late = self._readers()
            for asker in self._askers:
                asker.prepared = asker.wants = False
        for asker in late:
            asker.answer(refusal=f"the trainer has {digest[:12]} by now")
        return Weights(version=version, digest=digest, broadcast=sent)

    def _started(self) -> Broadcast:
        if self._place is None:
            self._listener = self._address.listen("weights can't be handed out")
            # Not at the given port, which is taken now.
            meeting = Address(self._address.host).listen("weights can't be handed out")
            store = meeting.getsockname()[1]
            host = self._address.host
            self._store = distributed().TCPStore(
                "localhost" if host == ANY else host,
                store,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=meeting.detach(),
                timeout=timedelta(seconds=TRANSFER_S),
            )
            self._place = Broadcast(
                backend=self._backend,
                host="" if host == ANY else host,
                port=self._listener.getsockname()[1],
                store=store,
                key=secrets.token_urlsafe(16),
                parts=(),
            )
            for work in (self._accept, self._send):
                threading.Thread(target=work, args=(self._listener,), daemon=True).start()
        return self._place

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer a reader until it leaves."""
        asker = _Asker(connection)
        with self._changed:
            self._askers.add(asker)
        try:
            with connection, connection.makefile("rb") as lines:
                while line := lines.readline(_LONGEST):
                    self._answer(asker, json.loads(line))
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.debug("a reader of weights left: %s", error)
        finally:
            with self._changed:
                self._askers.discard(asker)
                self._changed.notify_all()

    def _answer(self, asker: _Asker, asked: Mapping[str, Any]) -> None:
        with self._changed:
            refusal = self._refusal(asked)
            if not refusal and asked["verb"] != "check":
                asker.prepared = True
                asker.wants = asked["verb"] == "read"
                self._changed.notify_all()
                if asker.wants:
                    return  # answered when it is its turn
        asker.answer(refusal=refusal)

    def _refusal(self, asked: Mapping[str, Any]) -> str:
        if self._place is None:
            return "the trainer has ended"
        if not secrets.compare_digest(str(asked["key"]), self._place.key):
            return "the trainer hands out no weights by this key"
        if asked["digest"] != self._digest:
            return f"the trainer has {self._digest[:12]} by now; asked for {asked['digest'][:12]}"
        return ""

    def _send(self, listener: socket.socket) -> None:
        """Send to all who want to read, again and again."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed(listener) or self._readers())
                if self._is_closed(listener):
                    return
                self._changed.wait_for(self._is_complete, _GATHER_S)
                readers, tensors = self._readers(), self._tensors
                for asker in self._askers:
                    asker.prepared = asker.wants = False
            try:
                self._send_to(readers, tensors)
            except (OSError, RuntimeError) as error:  # the latter as where a GPU has no memory left
                log.warning("%s", error)
                self._leave()

    def _is_closed(self, listener: socket.socket) -> bool:
        return listener is not self._listener

    def _readers(self) -> tuple[_Asker, ...]:
        return tuple(each for each in self._askers if each.wants)

    def _is_complete(self) -> bool:
        return all(each.wants for each in self._askers if each.prepared)

    def _send_to(self, readers: Sequence[_Asker], tensors: Mapping[str, Tensor]) -> None:
        if not readers:
            return  # they have left
        if {*readers} != {*self._members}:
            self._leave()
            self._number += 1
        self._members = self._members or tuple(readers)
        size = len(self._members) + 1
        for rank, asker in enumerate(self._members, 1):
            asker.answer(group=self._number, rank=rank, size=size)
        if self._group is None:
            address = self._members[0].connection.getsockname()[0].removeprefix("::ffff:")
            self._group = group(self._backend, self._store, self._number, 0, size, address)
        for each in tensors.values():
            send(self._group, each.to(self._device) if self._backend == "nccl" else each)

    def _leave(self) -> None:
        left, self._group, self._members = self._group, None, ()
        if left is not None:
            leave(left)

    def remove(self) -> None:
        """Close all connections and forget the weights. Idempotent."""
        with self._changed:
            listener, self._listener = self._listener, None
            self._place, self._digest, self._tensors = None, "", {}
            askers = [*self._askers]
            self._changed.notify_all()
        for each in (listener, *(asker.connection for asker in askers)):
            if each is not None:
                with contextlib.suppress(OSError):  # wakes the thread that reads from it
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        self._leave()
        self._store = None
