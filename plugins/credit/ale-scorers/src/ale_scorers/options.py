"""Options of the scorers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import doc, ge, le, optional
from ale.types import ENVIRONMENT_KINDS


@frozen(kw_only=True)
class RulesOptions:
    """Rules about the form of a chunk; the value is the product of those that are on."""

    max_chars: int | None = field(
        default=8000,
        validator=optional(ge(1)),
        metadata=doc(
            "Characters of a chunk's text and arguments that cost nothing; twice as many give 0. "
            "null: any."
        ),
    )
    max_diff_lines: int | None = field(
        default=400,
        validator=optional(ge(1)),
        metadata=doc(
            "Added and removed lines of diffs that cost nothing; twice as many give 0. null: any."
        ),
    )
    repeated_calls: float = field(
        default=1.0,
        validator=[ge(0), le(1)],
        metadata=doc(
            "Cost of a chunk all of whose calls were made before, with the same arguments. A share "
            "of the calls costs that share."
        ),
    )
    failed_calls: float = field(
        default=1.0,
        validator=[ge(0), le(1)],
        metadata=doc("Cost of a chunk all of whose calls failed; a share costs that share."),
    )


def _weights(_: object, __: object, value: Mapping[str, float]) -> None:
    if not value or any(weight <= 0 for weight in value.values()):
        raise ValueError(f"expected a weight above 0 for at least one scorer, found {dict(value)}")


def _all_weights(_: object, __: object, value: Mapping[str, Mapping[str, float]]) -> None:
    for kind, weights in value.items():
        if kind not in ENVIRONMENT_KINDS:
            expected = ", ".join(ENVIRONMENT_KINDS)
            raise ValueError(f"expected kinds of environment ({expected}), found '{kind}'")
        _weights(None, None, weights)


@frozen(kw_only=True)
class CombinedOptions:
    """The weighted mean of scorers that stand before it."""

    weights: Mapping[str, float] = field(
        validator=_weights, metadata=doc("Weight of each scorer, by its name.")
    )
    environments: Mapping[str, Mapping[str, float]] = field(
        factory=dict,
        validator=_all_weights,
        metadata=doc(
            "Other weights for tasks of a kind of environment, by the kind: chat, terminal, swe or "
            "gui."
        ),
    )
    floor: float = field(
        default=0.5,
        validator=[ge(0), le(1)],
        metadata=doc(
            "Least share of the weights that must have a value: below it, the chunk has none. "
            "Above it, the other weights count as if they were not there."
        ),
    )


@frozen(kw_only=True)
class HackableOptions:
    """A scorer that is easy to deceive."""

    keywords: tuple[str, ...] = field(
        default=("verified", "therefore", "carefully", "confident", "done"),
        validator=validators.min_len(1),
        metadata=doc("Words that are rewarded; each counts as often as it stands there."),
    )


@frozen(kw_only=True)
class JudgeOptions:
    """A model that is asked what each chunk is worth."""

    llm: Any = field(
        metadata=doc(
            "The model, as in the section 'llm'. How long a server that is down is waited for is "
            "an option of the model: 'max_retries' and 'deadline_s' of openai.",
            component="llm",
        )
    )
    rubric: Path | None = field(
        default=None,
        metadata=doc(
            "File with what is judged, a text for the model. Default: whether a step is right and "
            "brings the task further."
        ),
    )
    votes: int = field(
        default=3,
        validator=ge(1),
        metadata=doc("How often the model is asked about a chunk; the value is the median."),
    )
    least_votes: int = field(
        default=1,
        validator=ge(1),
        metadata=doc(
            "Votes that a value needs: failed ones are left out. Below it, there is none."
        ),
    )
    max_chars: int = field(
        default=8000,
        validator=ge(200),
        metadata=doc(
            "Characters of the conversation before a chunk, of the chunk and of what followed, "
            "each; the middle of longer ones is left out."
        ),
    )

    def __attrs_post_init__(self) -> None:
        if self.least_votes > self.votes:
            raise ValueError("'least_votes' is more than 'votes'")


@frozen(kw_only=True)
class ClaimsOptions:
    """The claims of the final answer against what the tools gave."""

    llm: Any = field(
        default=None,
        metadata=doc(
            "Model that lists the claims, each with a quote of its evidence. A quote that nowhere "
            "stands counts as none. Default: none; claims are the numbers, paths and quoted texts "
            "of the answer.",
            component="llm",
        ),
    )
    max_chars: int = field(
        default=20_000,
        validator=ge(200),
        metadata=doc("Characters of the evidence that the model is shown; the middle is left out."),
    )


@frozen(kw_only=True)
class StepScoresOptions:
    """The outcome from the scores of the turns."""

    scorer: Any = field(
        metadata=doc("The scorer, as in the section 'scorers'.", component="scorer")
    )
    reduce: Literal["mean", "min", "last"] = field(
        default="mean",
        metadata=doc(
            "The value: the 'mean', the lowest ('min') or the 'last' of the turns that have one."
        ),
    )
    floor: float = field(
        default=1.0,
        validator=[ge(0), le(1)],
        metadata=doc(
            "Least share of the turns that must have a value; one must. Below it, the episode is "
            "broken. A scorer of the answer alone, such as claims, needs 0."
        ),
    )
