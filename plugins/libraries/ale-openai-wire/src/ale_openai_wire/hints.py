"""What to do about a failure that no retry helps against; the ends of error messages."""

import shlex
from collections.abc import Collection

_MOST_NAMES = 20

TOO_LONG = (
    "the conversation is longer than the context that the server has for this model; give it more "
    "(LM Studio: Context Length; vLLM: --max-model-len; Ollama: OLLAMA_CONTEXT_LENGTH; llama.cpp: "
    "-c) or lower agent.context_max_tokens and llm.max_tokens"
)
NO_TOOLS = (
    "the server takes no tools for this model; set llm.tools: false, so that calls are written as "
    "text, or turn tool calling on (vLLM: --enable-auto-tool-choice --tool-call-parser NAME; "
    "llama.cpp: --jinja)"
)


_ANY = "LM Studio: lms server start; vLLM: vllm serve MODEL; Ollama: ollama serve"
_STARTS = {
    "vllm": "vllm serve {}",
    "sglang": "python -m sglang.launch_server --model-path {}",
    "lmstudio": "lms server start",
    "ollama": "ollama serve",
}
"""By the server's name, which is that of its preset, the command that starts it with a model."""


def unreachable(base_url: str, reason: str, server: str | None = None, model: str = "") -> str:
    """No connection.

    Args:
        reason: what the system says, in a few words.
        server: ``vllm``, ``sglang``, ``lmstudio`` or ``ollama``; None where it may be any.
        model: that was to be asked.
    """
    start = _STARTS[server].format(shlex.quote(model)) if server else _ANY
    return (
        f"cannot connect to {base_url} ({reason}); start the server ({start}) or correct "
        "llm.base_url"
    )


def unknown_model(model: str, names: Collection[str]) -> str:
    """The server does not have the model.

    Args:
        names: the models that it lists; none where it lists none.
    """
    text = f"the server has no model {model!r}"
    if not names:
        return f"{text}; set llm.model to one that it lists at /models"
    shown = ", ".join(sorted(names)[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{text}; set llm.model to one of: {shown}" + (f" and {more} more" if more > 0 else "")
