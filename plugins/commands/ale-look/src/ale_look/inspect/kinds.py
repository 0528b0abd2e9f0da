"""Kinds of episodes: what each measures, and its name."""

from collections.abc import Mapping

from ale.runs import RunReader, evaluated_on
from ale.text import sampling_name
from ale.types import Episode

Kind = str
"""The measure of an episode: ``train``, the policy on a training task from its beginning;
``evaluation``, on a held-out task, followed by ``greedy`` or the temperature where that is not the
model's own; ``started``, from a state that an expert had reached; or ``shown``, a demonstration, of
which nothing was sampled."""
KINDS: Mapping[Kind, str] = {
    "train": "training",
    "evaluation": "held out",
    "started": "expert start",
    "shown": "demonstration",
}
"""Their names for readers; see `kind_name`, and `names_of` for those of a run."""


_EVALUATED = {
    "held-out tasks": KINDS["evaluation"],
    "tasks it trains on": "evaluation, trained on",
    "evaluation tasks": "evaluation",
}


def names_of(run: RunReader) -> Mapping[Kind, str]:
    """`KINDS` as a run has them: the tasks of its evaluation need not be held out."""
    return {**KINDS, "evaluation": _EVALUATED[evaluated_on(run)]}


def kind_of(episode: Episode) -> Kind:
    """Success from an expert's state, or of an expert, must not count as the policy's own."""
    if episode.split == "evaluation":
        how = "" if episode.temperature is None else f" {sampling_name(episode.temperature)}"
        return "evaluation" + how
    turns = episode.trajectory.turns
    if turns and all(turn.completion.forced for turn in turns):
        return "shown"
    return "started" if episode.start else "train"


def kind_name(kind: Kind, names: Mapping[Kind, str]) -> str:
    """A kind's name; with the temperature of an evaluation."""
    plain, _, temperature = kind.partition(" ")
    return f"{names[plain]}, {temperature}" if temperature else names[plain]
