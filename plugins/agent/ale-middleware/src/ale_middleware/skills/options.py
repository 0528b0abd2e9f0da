"""The options of the middleware ``skills``."""

from pathlib import Path

from attrs import field, frozen, validators

from ale.plugin import doc, ge, gt, le


@frozen(kw_only=True)
class EmbeddingOptions:
    """A server that computes vectors of texts."""

    base_url: str = field(
        metadata=doc("URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
    )
    model: str = field(metadata=doc("Name of the server's model."))
    api_key_env: str | None = field(
        default=None, metadata=doc("Environment variable with the server's key.")
    )
    threshold: float = field(
        default=0.5,
        validator=validators.and_(ge(-1), le(1)),
        metadata=doc("Minimum cosine between the vectors of a skill and of the task's goal."),
    )
    timeout_s: float = field(
        default=30.0, validator=gt(0), metadata=doc("Seconds for one request.")
    )


@frozen(kw_only=True)
class SkillOptions:
    """Adds the skills that fit a task to the system message."""

    store: Path = field(metadata=doc("SQLite file that `ale skills` writes."))
    top_k: int = field(
        default=3, validator=ge(1), metadata=doc("Maximum number of skills that a task gets.")
    )
    threshold: float = field(
        default=0.1,
        validator=validators.and_(ge(0), le(1)),
        metadata=doc("Minimum share of the words of the task's goal that a skill must have too."),
    )
    measure: bool = field(
        default=True,
        metadata=doc(
            "Leave each skill out of half of a task's rollouts, so that `ale skills review` can "
            "say what it is worth."
        ),
    )
    embeddings: EmbeddingOptions | None = field(
        default=None,
        metadata=doc(
            "Find skills by vectors that a server computes, instead of by words and 'threshold'."
        ),
    )
    heading: str = field(
        default="What was learned from earlier work:", metadata=doc("Line before the skills.")
    )
