"""Options of the model ``policy``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import doc, ge, gt, le, optional
from ale.strict import NameOrPath
from ale_nats_client.options import ServerOptions
from ale_servers.address import Address

Calls = Literal["hermes", "xml", "llama3", "mistral", "harmony", "glm", "deepseek", "gemma"]
_MOST_PARAMETERS = 10**9


@frozen(kw_only=True)
class TinyShape:
    """The size of a tiny model. The defaults make about a million parameters."""

    layers: int = field(default=4, validator=ge(1), metadata=doc("Number of transformer blocks."))
    width: int = field(default=128, validator=ge(8), metadata=doc("Width of the residual stream."))
    heads: int = field(default=4, validator=ge(1), metadata=doc("Number of query heads."))
    kv_heads: int = field(
        default=2,
        validator=ge(1),
        metadata=doc("Number of key and value heads; must divide heads."),
    )
    head_dim: int = field(default=32, validator=ge(2), metadata=doc("Width of a head; even."))
    mlp: int = field(default=384, validator=ge(8), metadata=doc("Width inside the MLP."))
    vocabulary: int = field(
        default=1024, validator=ge(300), metadata=doc("Maximum number of tokens in the vocabulary.")
    )
    context: int = field(
        default=4096, validator=ge(64), metadata=doc("Maximum number of tokens at once.")
    )

    def __attrs_post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError("'kv_heads' must divide 'heads'")
        if self.head_dim % 2:
            raise ValueError("'head_dim' must be even")
        if self.n_parameters > _MOST_PARAMETERS:
            # Making it would take all memory, or never end.
            found = f"found {self.n_parameters:,}"
            raise ValueError(f"expected at most {_MOST_PARAMETERS:,} parameters, {found}")

    @property
    def n_parameters(self) -> int:
        """Parameters of embeddings and matrices, with a full vocabulary; without those of norms."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return self.width * (self.vocabulary + self.layers * (attention + 3 * self.mlp))


@frozen(kw_only=True)
class TinyOptions(TinyShape):
    """A tiny model, made from the run's seed."""

    corpus: Path | None = field(
        default=None, metadata=doc("UTF-8 text from which the vocabulary is learned.")
    )
    whole: tuple[str, ...] = field(
        default=(),
        metadata=doc("Texts that are one token each, such as the beginning of a call."),
    )


@frozen(kw_only=True)
class PolicyOptions:
    """A transformer in this process. Give `model` or `tiny`; the default is `tiny`."""

    model: NameOrPath | None = field(
        default=None, metadata=doc("Folder of a causal model of transformers, or its name.")
    )
    tiny: TinyOptions | None = field(
        default=None, metadata=doc("Make a small model from the run's seed instead.")
    )
    temperature: float = field(
        default=1.0, validator=ge(0), metadata=doc("Sampling temperature; 0 is greedy.")
    )
    top_p: float = field(
        default=1.0,
        validator=[gt(0), le(1)],
        metadata=doc(
            "Nucleus sampling: sample from the likeliest tokens with this total probability."
        ),
    )
    max_tokens: int = field(
        default=512, validator=ge(1), metadata=doc("Maximum tokens of one answer.")
    )
    stop: tuple[str, ...] = field(default=(), metadata=doc("Stop strings."))
    context: int | None = field(
        default=None,
        validator=optional(ge(16)),
        metadata=doc("Maximum tokens of prompt and answer; default: the model's own limit."),
    )
    max_batch: int = field(
        default=64, validator=ge(1), metadata=doc("Answers sampled in parallel.")
    )
    prefix_cache_mb: int = field(
        default=256, validator=ge(0), metadata=doc("Size of the prefix cache, MiB.")
    )
    decoder: Literal["auto", "packed", "modules"] = field(
        default="auto",
        metadata=doc(
            "packed: a copy of the weights in few large matrices (Qwen2, Qwen3, Llama); modules: "
            "the model's own forward pass; auto: packed if supported."
        ),
    )
    chat_template: NameOrPath | None = field(
        default=None,
        metadata=doc(
            "chatml, trl/NAME for a template of the package trl, or a Jinja file, instead of the "
            "tokenizer's own template."
        ),
    )
    calls: Calls = field(default="hermes", metadata=doc("How the model writes tool calls."))
    turns: Literal["as-rendered", "as-sampled"] = field(
        default="as-rendered",
        metadata=doc(
            "as-rendered: refuse a template that writes earlier turns differently from how they "
            "were sampled; as-sampled: accept any, and leave earlier turns as they were sampled."
        ),
    )
    device: Literal["auto", "cpu", "cuda"] = field(
        default="auto", metadata=doc("auto: CUDA if available, otherwise the CPU.")
    )
    dtype: Literal["auto", "float32", "bfloat16"] = field(
        default="auto", metadata=doc("auto: bfloat16 on CUDA, float32 elsewhere.")
    )
    quantise: Literal["nf4"] | None = field(
        default=None,
        metadata=doc(
            "nf4: load the linear layers in 4 bits, to train LoRA adapters over them (QLoRA); "
            "needs the extra 'qlora'."
        ),
    )
    threads: int | None = field(
        default=1,
        validator=optional(ge(1)),
        metadata=doc("Torch threads of the process on a CPU; null does not set them."),
    )

    def __attrs_post_init__(self) -> None:
        if self.model is not None and self.tiny is not None:
            raise ValueError("give 'model' or 'tiny', not both")
        if self.quantise is not None and self.model is None:
            raise ValueError("'quantise' needs 'model': a tiny model is made, not loaded")
        if any(not stop for stop in self.stop):
            raise ValueError("an empty text in 'stop' would end every answer at once")


@frozen(kw_only=True)
class Following:
    """The weights that a run has given its servers when its workers start."""

    version: int = field(validator=ge(0), metadata=doc("Version of these weights."))
    digest: str = field(
        metadata=doc("Digest of these weights, as `ale engines list --json` shows it.")
    )


@frozen(kw_only=True)
class ServersOptions(PolicyOptions):
    """Inference servers that sample the policy; a trainer in this process changes its weights.

    Give one of `urls`, `registry`, `nats` and `start`. `max_batch`, `prefix_cache_mb` and `decoder`
    apply to servers that the run starts.
    """

    urls: tuple[str, ...] = field(
        default=(),
        metadata=doc("Base URLs of servers, as `ale serve` prints them.", changeable=True),
    )
    registry: Path | None = field(
        default=None,
        metadata=doc(
            "Folder in which servers have entries: `ale serve --register FOLDER`.", changeable=True
        ),
    )
    nats: str | ServerOptions = field(
        default="",
        metadata=doc(
            "Registry in NATS, for several hosts: nats://HOST:PORT/BUCKET, as `ale serve "
            "--register` takes it; or a mapping with this as `url`, and with users and "
            "certificates as for the executor nats.",
            changeable=True,
        ),
    )
    start: int = field(
        default=0,
        validator=ge(0),
        metadata=doc(
            "Number of servers that the run starts on this machine, and ends when it ends.",
            changeable=True,
        ),
    )
    server: Mapping[str, Any] = field(
        factory=dict,
        metadata=doc(
            "Type of the servers that the run starts, with its options except `model`, such as "
            "{type: vllm-server}; default: a policy with the options given here."
        ),
    )
    gpus: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "GPUs of each server that the run starts, as in CUDA_VISIBLE_DEVICES, such as "
            "['1', '2,3'] for two servers; default: those of the run.",
            changeable=True,
        ),
    )
    interruption: Literal["keep", "abort"] = field(
        default="keep",
        metadata=doc(
            "What new weights do to answers in progress. keep: the server continues them, with "
            "keys and values recomputed; abort: the server returns them, and they are sent again "
            "with what was sampled so far."
        ),
    )
    take_over: bool = field(
        default=False,
        metadata=doc(
            "At the start of the run, give its weights to servers that have other weights, and "
            "take them from runs that hold them.",
            changeable=True,
        ),
    )
    adapter: str = field(
        default="",
        validator=validators.matches_re(r"[A-Za-z0-9_.-]*"),
        metadata=doc(
            "Give the servers only the trainer's LoRA adapters, under this name: other runs may "
            "train other adapters for the same model on the same servers."
        ),
    )
    follow: Following | None = field(
        default=None,
        metadata=doc(
            "Sample from the newest weights of the run that a server has, which another process "
            "gives the servers. Set for the workers of an executor."
        ),
    )
    weights_channel: Literal["folder", "shared_memory", "cuda_ipc", "gloo", "nccl"] = field(
        default="folder",
        metadata=doc(
            "How servers get new weights. folder: from files; shared_memory: from this machine's "
            "memory; cuda_ipc: from the memory of the GPU on which the run trains, for servers "
            "that see this GPU; gloo and nccl: sent to all servers at once, also to other "
            "machines, by torch.distributed. All but folder hold a copy of the weights."
        ),
    )
    weights: Path | None = field(
        default=None,
        metadata=doc(
            "Folder for new weights, which the servers read unless there is a 'weights_address'; "
            "default: in the run directory.",
            changeable=True,
        ),
    )
    weights_address: str = field(
        default="",
        metadata=doc(
            "HOST or HOST:PORT at which servers that can't read the folder fetch new weights from "
            "the run; auto or auto:PORT: at any address of this machine. For gloo and nccl: where "
            "all servers ask for them; default: 127.0.0.1, for servers of this machine.",
            changeable=True,
        ),
    )
    timeout_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds for one answer, waiting included.", changeable=True),
    )
    refresh_s: float = field(
        default=2.0,
        validator=gt(0),
        metadata=doc("Seconds between two looks at the servers.", changeable=True),
    )
    api_key_env: str | None = field(
        default=None, metadata=doc("Environment variable with the servers' key.", changeable=True)
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.quantise is not None:
            raise ValueError(
                "'quantise' is of type: policy; servers are given whole weights, or adapters over "
                "the whole weights that they have"
            )
        ways = (bool(self.urls), self.registry is not None, bool(self.nats), self.start > 0)
        if sum(ways) != 1:
            raise ValueError("give one of 'urls', 'registry', 'nats' and 'start'")
        _ = self.nats_server  # raises if it is not a URL
        self._check_weights()
        if self.server and not (self.start and "type" in self.server):
            raise ValueError("'server' is for 'start', and needs a 'type'")
        if "model" in self.server:
            raise ValueError("'server' has no 'model' of its own: it serves the model of 'llm'")
        if self.gpus and len(self.gpus) != self.start:
            raise ValueError(
                f"'gpus' has {len(self.gpus)} entries, one for each server that the run starts; "
                f"'start' is {self.start}"
            )
        if self.follow is not None and (self.take_over or self.start > 0):
            raise ValueError("'follow' takes the servers as they are: without take_over and start")

    def _check_weights(self) -> None:
        _ = self.hands_out_at  # raises if it is not an address
        channel = self.weights_channel
        for name in ("weights", "weights_address", "adapter"):
            sends = name == "weights_address" and channel in ("gloo", "nccl")
            if channel != "folder" and not sends and getattr(self, name):
                raise ValueError(f"'{name}' is for 'weights_channel: folder', found '{channel}'")

    @property
    def hands_out_at(self) -> Address | None:
        """Where the run hands out new weights, if it does."""
        if not self.weights_address:
            return None
        try:
            return Address.read(self.weights_address)
        except ValueError as error:
            raise ValueError(f"'weights_address': {error}") from None

    @property
    def nats_server(self) -> ServerOptions | None:
        """How the registry in NATS is reached, if there is one."""
        if isinstance(self.nats, ServerOptions):
            return self.nats
        return ServerOptions(url=self.nats) if self.nats else None
