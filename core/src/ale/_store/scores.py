"""The stored scores of chunks: one file per step, one of feedback, and one per `ale regrade`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import define, field

from ale._store.lines import Lines
from ale.attempts import mean
from ale.types import FEEDBACK, Chunk, Episode, ScoredEpisode, StepScore, replace
from ale.types._record import record

FOLDER = "step_scores"
NOT_SCORED = "not scored"


def of_step(step: int) -> str:
    """Name of the file with the scores of the episodes that a step learns from."""
    return f"{FOLDER}/{step:05d}.jsonl"


OF_FEEDBACK = f"{FOLDER}/{FEEDBACK}.jsonl"
_REGRADED = "regraded-"


def of_regrading(moment: str) -> str:
    """Name of the file with the scores of an `ale regrade`."""
    return f"{FOLDER}/{_REGRADED}{moment}.jsonl"


def last_regrading(run: Path) -> Path | None:
    """The newest file of an `ale regrade`; None before the first."""
    found = sorted((run / FOLDER).glob(f"{_REGRADED}*.jsonl"))
    return found[-1] if found else None


def read_scores(
    run: Path, step: int | None = None, *, regraded: bool = True
) -> Iterator[ScoredEpisode]:
    """The stored scores of a run, those of later files last.

    Args:
        step: without those of other steps. Feedback and the scores of `ale regrade` may be of any.
        regraded: with those of `ale regrade`.
    """
    for path in _files(run):
        of_a_step = path.stem.isdecimal()
        if path.name.startswith(_REGRADED) and not regraded:
            continue
        if step is None or not of_a_step or int(path.stem) == step:
            yield from Lines(path, ScoredEpisode)


def _files(run: Path) -> list[Path]:
    return sorted((run / FOLDER).glob("*.jsonl"))


_Key = tuple[str, str]
"""Id of an episode, and when it started."""


@record
class _Scored:
    """The fields of a `ScoredEpisode` that say what it is about."""

    episode_id: str
    started_at: str = ""
    schema: int = 1


@define
class _Known:
    """The lines of one file that were read, by their offsets."""

    inode: int
    size: int = 0
    last: int = -1
    offsets: dict[_Key, list[int]] = field(factory=dict)


class ScoreIndex:
    """Finds the scores of an episode. Each line is read once, also if files grow meanwhile."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._known: dict[Path, _Known] = {}

    def of(self, episode: Episode) -> Sequence[ScoredEpisode]:
        """The lines about one episode, those of later files last.

        Raises:
            InputError: a line is damaged.
        """
        key, found = (episode.id, episode.started_at), []
        for path in _files(self._run):
            offsets = self._read(path).offsets.get(key, ())
            found += [Lines(path, ScoredEpisode).at(offset) for offset in offsets]
        return found

    def _read(self, path: Path) -> _Known:
        now = path.stat()
        known = self._known.get(path)
        if known is None or known.inode != now.st_ino or now.st_size < known.size:
            known = self._known[path] = _Known(now.st_ino)
        if now.st_size > known.size:
            for offset, head in Lines(path, _Scored).with_offsets(max(0, known.last)):
                if offset > known.last:
                    key = head.episode_id, head.started_at
                    known.offsets.setdefault(key, []).append(offset)
                    known.last = offset
            known.size = now.st_size
        return known


class StoredScores:
    """Stored scores by episode."""

    def __init__(self, rows: Iterable[ScoredEpisode]) -> None:
        self._rows: dict[tuple[str, str], list[ScoredEpisode]] = {}
        for row in rows:
            self._rows.setdefault((row.episode_id, row.started_at), []).append(row)

    def of(self, episode: Episode) -> Sequence[ScoredEpisode]:
        """The lines about one episode, in their order."""
        return self._rows.get((episode.id, episode.started_at), ())


def located(
    rows: Iterable[ScoredEpisode], chunks: Sequence[Chunk]
) -> Mapping[str, tuple[StepScore, ...]]:
    """Stored scores of an episode for these chunks, by scorer.

    Scores of other chunks count where those end: several that end in one chunk give it their mean.
    Of several lines about one chunk, the last counts.
    """
    found: dict[str, list[StepScore]] = {}
    for row in rows:
        scores = found.setdefault(row.scorer, [StepScore(abstained=NOT_SCORED) for _ in chunks])
        for number, score in _placed(row, chunks).items():
            scores[number] = score
    return {name: tuple(scores) for name, scores in found.items()}


def _placed(row: ScoredEpisode, chunks: Sequence[Chunk]) -> Mapping[int, StepScore]:
    if row.chunks == tuple(chunks):
        return dict(enumerate(row.scores))
    ends = [_end(chunk) for chunk in chunks]
    placed: dict[int, list[StepScore]] = {}
    for chunk, score in zip(row.chunks, row.scores, strict=True):
        end = _end(chunk)
        number = next((i for i, other in enumerate(ends) if end <= other), None)
        if number is not None:
            placed.setdefault(number, []).append(score)
    return {number: _joined(scores) for number, scores in placed.items()}


def _end(chunk: Chunk) -> tuple[int, int, int]:
    last = chunk.spans[-1]
    return last.turn, last.text[1], last.calls[1]


def _joined(scores: Sequence[StepScore]) -> StepScore:
    """The mean of several scores, without those that abstained."""
    values = [score.value for score in scores if score.value is not None]
    if len(scores) == 1:
        return scores[0]
    texts = "\n".join(score.text for score in scores if score.text)
    cost = sum(score.cost for score in scores)
    if not values:
        return replace(scores[0], cost=cost, text=texts)
    return StepScore(value=mean(values), cost=cost, text=texts)
