"""Options that models of this kind share, and the key that one of them names."""

from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

from ale.errors import InputError
from ale.plugin import Secret, doc, ge, gt, le, optional


@frozen(kw_only=True)
class ChatOptions:
    """Sampling, timeouts and retries."""

    temperature: float | None = field(
        default=None,
        validator=optional(ge(0)),
        metadata=doc("Sampling temperature. Default: the server's."),
    )
    top_p: float | None = field(
        default=None,
        validator=optional([gt(0), le(1)]),
        metadata=doc("Nucleus sampling: total probability of the tokens. Default: the server's."),
    )
    max_tokens: int | None = field(
        default=None,
        validator=optional(ge(1)),
        metadata=doc("Maximum tokens of one answer. Default: the server's."),
    )
    send_seed: bool = field(
        default=True,
        metadata=doc(
            "Send a seed, derived from the episode's seed and the turn, to servers that accept one."
        ),
    )
    tools: bool = field(
        default=True, metadata=doc("The model accepts tools; false: agents write calls as text.")
    )
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = field(
        default=None,
        metadata=doc("Field in which earlier reasoning is sent back; null: it is not sent."),
    )
    timeout_s: float = field(
        default=120.0,
        validator=gt(0),
        metadata=doc("Seconds for one attempt, up to its last byte.", changeable=True),
    )
    deadline_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc(
            "Seconds for all attempts at one answer, including the waits between them.",
            changeable=True,
        ),
    )
    max_retries: int = field(
        default=5,
        validator=ge(0),
        metadata=doc(
            "Retries after 408, 409, 425, 429, 5xx, lost connections, timeouts, broken answers.",
            changeable=True,
        ),
    )
    retry_min_s: float = field(
        default=0.5,
        validator=ge(0),
        metadata=doc(
            "Seconds of the first wait; later ones double, and each is less by up to half at "
            "random.",
            changeable=True,
        ),
    )
    retry_max_s: float = field(
        default=30.0,
        validator=ge(0),
        metadata=doc(
            "Seconds of the longest wait, unless the server asks for a longer one.", changeable=True
        ),
    )
    max_concurrency: int = field(
        default=64,
        validator=ge(1),
        metadata=doc("Maximum number of requests at the same time; others wait.", changeable=True),
    )

    def __attrs_post_init__(self) -> None:
        if self.retry_max_s < self.retry_min_s:
            raise ValueError("'retry_max_s' is less than 'retry_min_s'")


def key_from(
    variable: str | None,
    environ: Mapping[str, str],
    *,
    path: str = "llm.api_key_env",
    otherwise: str = "",
) -> Secret | None:
    """The key in an environment variable; None for no variable.

    Args:
        path: the option that names the variable, for messages.
        otherwise: an alternative to setting it, as the end of the hint.

    Raises:
        InputError: the variable is not set, or empty, or can't be sent in a header.
    """
    if variable is None:
        return None
    key = environ.get(variable, "").strip()
    if not key:
        message = f"the environment variable {variable} is not set"
        hint = f"export {variable}=...{otherwise}"
        raise InputError.of(message, path=path, hint=hint)
    if not (key.isascii() and key.isprintable()):
        message = f"the key in {variable} has characters that no header can have"
        expected = "printable ASCII characters"
        raise InputError.of(message, path=path, expected=expected)
    return Secret(key)
