"""Train a head on the labelled steps of stored runs, and score it on those that were held out."""

import hashlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from attrs import evolve, frozen

from ale.attempts import mean
from ale.errors import InputError
from ale.runs import RunReader
from ale.strict import nearest
from ale.text import counted
from ale.types import Episode, ScoredEpisode, whole_turn
from ale.values import NAME, rates, read_values
from ale_prm import head as heads
from ale_prm.frozen import Place, conversation, end_of, load_frozen

VALUES = "values"


@frozen(kw_only=True)
class Labelled:
    """A trajectory with a label at some of its places."""

    episode: Episode
    places: Sequence[Place]
    labels: Sequence[float]

    def key(self, by: str) -> str:
        """Equal for those that must be on the same side of the split."""
        return self.episode.task_id if by == "task" else self.read(self.places[-1])

    def read(self, place: Place) -> str:
        """Equal for places before which the same was said."""
        said = [
            (each.role, each.content, [(call.name, call.arguments) for call in each.tool_calls])
            for each in conversation(self.episode.trajectory, place)
        ]
        return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()


def train_head(
    runs: Sequence[Path],
    model: str,
    labels: str,
    out: Path,
    *,
    held_out: float,
    by: str,
    shuffled: bool,
    seed: int,
) -> Iterator[str]:
    """Train and write a head, and say how well it does.

    Args:
        labels: ``values``, or the name of a scorer.
        by: ``trajectory`` or ``task``: what is on one side of the split as a whole.
        shuffled: the labels of the training steps are dealt to them at random.
        seed: of the split, and of the dealing.

    Raises:
        InputError: there are no labels or too few, or the model can't be loaded.
        StoreError: the head can't be written.
    """
    rows = [row for run in runs for row in _labelled(RunReader(run), labels)]
    learned, apart = split(rows, held_out=held_out, by=by, seed=seed)
    kept = unseen(learned, apart)
    frozen_model = load_frozen(model, path="--model")
    vectors, wanted = [], []
    for part in (learned, kept):
        made = [frozen_model.vectors(row.episode.trajectory, row.places) for row in part]
        vectors.append(torch.cat(made))
        wanted.append([label for row in part for label in row.labels])
    target = list(wanted[0])
    if shuffled:
        random.Random(f"labels {seed}").shuffle(target)  # noqa: S311 - not a secret
    fitted = heads.fit(vectors[0], target)
    scores, truth = fitted.scores(vectors[1]), wanted[1]
    found = heads.HeldOut(
        trajectories=len(kept),
        steps=len(truth),
        auc=heads.auc(scores, truth),
        calibration=heads.calibration_error(scores, truth),
        squared=heads.squared_error(scores, truth),
        squared_of_mean=heads.squared_error([mean(target)] * len(truth), truth),
    )
    about = heads.About(
        model=model if not Path(model).is_dir() else str(Path(model).absolute()),
        weights=frozen_model.digest,
        labels=labels,
        shuffled=shuffled,
        trajectories=len(learned),
        steps=len(target),
        held_out=found,
    )
    heads.write(out, fitted, frozen_model.probe(), about)
    yield from _report(about)
    yield f"head in {out}"


def _report(about: heads.About) -> Iterator[str]:
    found = about.held_out
    dealt = ", dealt at random" if about.shuffled else ""
    sizes = f"{counted(about.steps, 'step')} of {about.trajectories} trajectories"
    yield f"labels       {about.labels} of {sizes}{dealt}"
    yield f"held out     {counted(found.steps, 'step')} of {found.trajectories} trajectories"
    if found.auc is None:
        yield f"AUC          unknown: all labels held out are on one side of {heads.GOOD}"
    else:
        yield f"AUC          {found.auc:.3f}"
    yield f"calibration  error {found.calibration:.3f} over ten bins"
    alone = f"{found.squared_of_mean:.4f} of the mean label alone"
    yield f"squared      {found.squared:.4f}, and {alone}"


def split(
    rows: Sequence[Labelled], *, held_out: float, by: str, seed: int
) -> tuple[list[Labelled], list[Labelled]]:
    """Trajectories to learn from, and others. Equal ones are on the same side.

    Raises:
        InputError: a side would have none.
    """
    keys = sorted({row.key(by) for row in rows})
    random.Random(f"split {seed}").shuffle(keys)  # noqa: S311 - not a secret
    n = max(1, round(held_out * len(keys)))
    if n >= len(keys):
        message = f"{len(keys)} different {'tasks' if by == 'task' else 'trajectories'} have labels"
        raise InputError.of(message, path="--held-out", expected="two or more, one for each side")
    there = set(keys[:n])
    learned = [row for row in rows if row.key(by) not in there]
    return learned, [row for row in rows if row.key(by) in there]


def unseen(learned: Sequence[Labelled], apart: Sequence[Labelled]) -> list[Labelled]:
    """Those held out, without places that learned ones begin with too: these say nothing new.

    Raises:
        InputError: nothing is left.
    """
    known = {row.read(place) for row in learned for place in row.places}
    kept = []
    for row in apart:
        pairs = zip(row.places, row.labels, strict=True)
        left = [(place, label) for place, label in pairs if row.read(place) not in known]
        if left:
            places, labels = zip(*left, strict=True)
            kept.append(evolve(row, places=places, labels=labels))
    if not kept:
        message = "every step that is held out begins a trajectory that is learned from too"
        raise InputError.of(message, path="--held-out", hint="more trajectories; or --by task")
    return kept


def _labelled(run: RunReader, labels: str) -> Iterator[Labelled]:
    found = [*(_valued(run) if labels == VALUES else _scored(run, labels))]
    if found:
        yield from found
        return
    if labels == VALUES:
        hint = f"ale data values {run.path}"
        raise InputError.of("no episode has values", file=str(run.path / NAME), hint=hint)
    known = sorted({row.scorer for row in run.step_scores()})
    raise InputError.of(
        f"{run.path} has no values of a scorer '{labels}'",
        path="--labels",
        expected="one of " + ", ".join([VALUES, *known]),
        hint=nearest(labels, [VALUES, *known]) or f"ale regrade {run.path} --scorer ...",
    )


def _valued(run: RunReader) -> Iterator[Labelled]:
    """V of the state after each turn."""
    values = read_values(run.path / NAME)
    v = rates(values)
    for episode in run.episodes:
        measured, turns = values.episodes.get(episode.id), episode.trajectory.turns
        if measured is None or len(measured.states) != len(turns) + 1:
            continue
        places = [end_of([whole_turn(i, turn)]) for i, turn in enumerate(turns)]
        labels = [v[episode.task_id, state] for state in measured.states[1:]]
        yield Labelled(episode=episode, places=places, labels=labels)


def _scored(run: RunReader, scorer: str) -> Iterator[Labelled]:
    """The newest scores of each episode, without abstentions."""
    rows: dict[tuple[str, str], ScoredEpisode] = {}
    for row in run.step_scores():
        if row.scorer == scorer:
            rows[row.episode_id, row.started_at] = row
    for episode in run.episodes:
        found = rows.get((episode.id, episode.started_at))
        if found is None:
            continue
        known = [
            (end_of(chunk.spans), score.value)
            for chunk, score in zip(found.chunks, found.scores, strict=True)
            if score.value is not None and chunk.spans
        ]
        turns = len(episode.trajectory.turns)
        if any(place[0] >= turns or not 0 <= value <= 1 for place, value in known):
            file, expected = str(run.path / "step_scores"), "values in [0, 1] of turns that it has"
            message = f"the scores of {scorer} for the episode {episode.id} are damaged"
            raise InputError.of(message, file=file, expected=expected)
        if known:
            places, labels = zip(*known, strict=True)
            yield Labelled(episode=episode, places=places, labels=labels)
