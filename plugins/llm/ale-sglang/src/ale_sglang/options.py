"""Options of the model ``sglang-server``."""

from typing import Literal

from attrs import field, frozen

from ale.plugin import doc
from ale_servers.options import HostedOptions


@frozen(kw_only=True)
class SGLangServerOptions(HostedOptions):
    """SGLang on this machine, in an environment of its own: `ale engines install sglang`."""

    dtype: Literal["float32", "bfloat16", "float16"] = field(
        default="bfloat16", metadata=doc("Data type of weights and computations.")
    )
    arguments: tuple[str, ...] = field(
        default=(), metadata=doc("Further arguments of SGLang, such as --tp-size=2.")
    )
