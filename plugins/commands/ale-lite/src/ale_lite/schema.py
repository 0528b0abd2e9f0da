"""The keys of a config file of ALE-lite and their defaults."""

from pathlib import Path
from typing import Literal

from attrs import field, fields, frozen, validators

from ale.plugin import doc, ge, gt

NO_KEY = "lm-studio"
"""The key in every example. LM Studio does not check keys: it is no secret."""


@frozen(kw_only=True)
class LlmSection:
    """A model behind an OpenAI-compatible server."""

    base_url: str = field(
        default="http://127.0.0.1:1234/v1",
        validator=validators.matches_re(r"https?://[^\s]+"),
        metadata=doc("URL of the API, up to and including /v1."),
    )
    api_key: str = field(
        default=NO_KEY, validator=validators.min_len(1), metadata=doc("The bearer key.")
    )
    model: str = field(
        default="local-model-name",
        validator=validators.min_len(1),
        metadata=doc("Name of the model, as the server lists it."),
    )
    temperature: float = field(default=0.2, validator=ge(0), metadata=doc("Sampling temperature."))
    max_tokens: int = field(
        default=1024, validator=ge(1), metadata=doc("Maximum tokens of one answer.")
    )
    timeout_s: float = field(
        default=120.0, validator=gt(0), metadata=doc("Seconds for one answer.")
    )


@frozen(kw_only=True)
class AgentSection:
    """The limits of the agent."""

    max_steps: int = field(
        default=40, validator=ge(1), metadata=doc("Maximum number of tool calls.")
    )
    max_turns: int = field(
        default=80, validator=ge(1), metadata=doc("Maximum number of answers of the model.")
    )
    tool_timeout_s: float = field(
        default=60.0, validator=gt(0), metadata=doc("Seconds for one tool call.")
    )
    time_limit_s: float = field(
        default=600.0, validator=gt(0), metadata=doc("Wall-clock seconds for the whole task.")
    )
    context_max_tokens: int = field(
        default=8000, validator=ge(256), metadata=doc("Maximum tokens of the conversation.")
    )


@frozen(kw_only=True)
class SandboxSection:
    """Where commands are run."""

    backend: Literal["auto", "docker", "local"] = field(
        default="auto", metadata=doc("auto is docker if its engine answers, else local.")
    )
    image: str = field(
        default="python:3.11-slim",
        validator=validators.min_len(1),
        metadata=doc("Image of the container; local uses none."),
    )
    network: bool = field(
        default=False, metadata=doc("Give the container a network; local uses the host's.")
    )
    allowlist_paths: tuple[Path, ...] = field(
        default=(),
        metadata=doc("Host paths that the container sees, read-only; local sees the whole host."),
    )


@frozen(kw_only=True)
class LiteConfig:
    """A whole file. An empty one is all defaults."""

    llm: LlmSection = field(default=LlmSection(), metadata=doc("The model."))
    agent: AgentSection = field(default=AgentSection(), metadata=doc("The agent."))
    sandbox: SandboxSection = field(default=SandboxSection(), metadata=doc("The sandbox."))


def keys() -> list[str]:
    """Dotted names of every key: ``llm.base_url``, ..."""
    sections = {"llm": LlmSection, "agent": AgentSection, "sandbox": SandboxSection}
    return [f"{name}.{key.name}" for name, cls in sections.items() for key in fields(cls)]
