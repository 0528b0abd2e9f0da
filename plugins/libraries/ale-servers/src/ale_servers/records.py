"""What clients and servers exchange. JSON on the wire."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Interruption = Literal["keep", "abort"]
"""What a pause does to requests in progress: ``keep`` holds them, and on resumption they continue
under the weights present then, with keys and values computed anew; ``abort`` ends them with what
they have so far."""


TokenIds = tuple[Annotated[int, Meta(ge=0, lt=2**31)], ...]


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sample an answer to token ids."""

    id: str
    """Id by which this request can be aborted; unique among those in progress."""
    prompt_ids: TokenIds
    answer_ids: TokenIds = ()
    """The beginning of an interrupted request's answer, after which the rest is sampled."""
    forced_ids: TokenIds = ()
    """Ids to score instead of sampling: at temperature 1, over all tokens."""
    max_tokens: Annotated[int, Meta(ge=1)]
    """Most new tokens; the server may stop earlier at its context."""
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    stop_ids: TokenIds = ()
    """Tokens that end the answer, and are part of it."""
    stop: tuple[str, ...] = ()
    """Texts; the token that completes one is the answer's last."""
    seed: str = ""
    """The same text, ids and weights give the same answer if the server is deterministic. Continued
    after `answer_ids`, the answer is the one that was interrupted."""
    least_version: int = 0
    """A server with older weights has missed an update, and samples nothing."""
    adapter: str = ""
    """The adapter over the server's weights to sample from; empty for none. Versions are then those
    of the adapter."""


SampleReason = Literal["stop", "length", "abort", "forced"]


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The new tokens of an answer; the three tuples are of one length."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log-probabilities of the sampler: after temperature and top-p."""
    versions: tuple[int, ...]
    """The version of the weights that sampled each token."""
    reason: SampleReason
    digests: dict[int, str]
    """The digest of the weights of each of these versions."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a trainer hands out its folders of weights over HTTP; see `origin`."""

    host: str
    """Empty for the address from which the server is asked to take the weights."""
    port: int
    key: str
    """Begins the path: who does not have it gets nothing."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor in memory, or one that is sent."""

    name: str
    dtype: str
    """As torch writes it."""
    shape: tuple[int, ...]
    begin: int = 0
    """Offset of the values in memory, in bytes."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Weights in the memory of the trainer's machine; see `shared_memory`."""

    machine: str
    """Id of the machine since its last start."""
    size: int
    """Bytes."""
    parts: tuple[Part, ...]
    file: str = ""
    """The file in shared memory; empty for memory of a GPU."""
    handle: str = ""
    """CUDA IPC handle in hexadecimal digits."""
    gpu: str = ""
    """UUID of the GPU."""


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """Weights that the trainer sends to all its servers at once; see `broadcast`."""

    backend: Literal["gloo", "nccl"]
    """Of torch.distributed."""
    host: str
    """Empty for the address from which the server is asked to take the weights."""
    port: int
    store: int
    """Port of the store by which the members of a group find each other."""
    key: str
    """Who does not have it gets nothing."""
    parts: tuple[Part, ...]
    """The tensors in the order in which they are sent."""


class Weights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of the weights: in a folder, in memory, or to be had from the trainer."""

    version: int
    digest: str
    """Of the names, types, shapes and values of the tensors; see `tensors.digest`."""
    folder: str = ""
    """Empty for weights that are elsewhere, or that no server can be given."""
    memory: Memory | None = None
    """Where they are in memory, if they are."""
    broadcast: Broadcast | None = None
    """How the trainer sends them, if it does."""
    run: str = ""
    """Id of the run that published the weights."""
    adapter: str = ""
    """Name of the adapter, over weights that the server has; empty if these are whole weights."""
    origin: Origin | None = None
    """Where a server that can't read the folder gets the files; None for nowhere."""

    @property
    def stored(self) -> bool:
        """Can a server be given these weights?"""
        return bool(self.folder or self.memory or self.broadcast)

    @property
    def parts(self) -> tuple[Part, ...] | None:
        """The tensors; None for weights in a folder, whose files list them."""
        place = self.memory or self.broadcast
        return None if place is None else place.parts


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter that a server has under a name."""

    version: int
    digest: str
    run: str = ""
    """Id of the run that gave the adapter."""


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Pause a server."""

    mode: Interruption = "keep"
    seconds: Annotated[float, Meta(ge=0, le=3600)] = 120.0
    """The server resumes by itself after this time: its client may have been killed."""


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True):
    """End requests with what they have so far."""

    ids: tuple[str, ...] | None = None
    """None means all requests."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The run that gives a server its weights, or one of its adapters; see `leases`."""

    run: str
    """Id of the run."""
    adapter: str = ""
    """Empty for the weights themselves."""
    host: str = ""
    pid: int = 0
    since: float
    """Seconds since the epoch, by the server's clock."""


class HoldRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Begin or renew a run's lease."""

    run: Annotated[str, Meta(min_length=1, max_length=200)]
    adapter: Annotated[str, Meta(max_length=200)] = ""
    host: Annotated[str, Meta(max_length=300)] = ""
    pid: int = 0
    seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """The lease expires after this time, unless it is renewed."""
    take: bool = False
    """Take the server from the runs that hold it."""


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """End a run's lease."""

    run: str
    adapter: str = ""


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it is now."""

    instance: str
    """Id of this server process; a restarted server has another."""
    model: str
    fingerprint: str
    """Fingerprint of architecture and vocabulary, which decides what weights and ids fit. Empty if
    the server can't tell: names and shapes are then compared when it is given weights."""
    version: int
    digest: str
    """Digest of the weights that the next token is sampled from."""
    run: str = ""
    """Id of the run that gave the server these weights; empty if none did."""
    paused: bool
    running: int
    waiting: int
    max_running: int
    """Answers sampled at once; more wait."""
    context: int
    """Most tokens of prompt and answer."""
    deterministic: bool
    since: float
    """Start of the process, seconds since the epoch."""
    adapters: dict[str, Held] = {}
    """Adapters by name."""
    leases: tuple[Lease, ...] = ()
    """The runs that give the server weights; filled in by `web.routes`."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A server in a registry."""

    url: str
    """Up to ``/ale``, without a slash at the end."""
    name: str = ""
    host: str = ""
    pid: int = 0
    """0 if not known."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused."""

    kind: Literal["invalid", "context", "not-sampled", "held", "weights", "failed", "unauthorized"]
    message: str
