"""Score the chunks of stored episodes, without sampling or grading."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from ale._config.load import part_values, select
from ale._config.model import Selected
from ale._config.plugin_files import load_plugin_files
from ale._config.source import merge, parse_overrides
from ale._run.interrupt import Interrupt
from ale._run.parts import build, check_scorers, numbered
from ale._run.scoring import Scoring
from ale._run.start import Host, secret_names
from ale._store import Redactor, RunReader
from ale._store.lines import Appender, Lines
from ale._store.scores import StoredScores, last_regrading, of_regrading
from ale.files import store_errors
from ale.plugin import BuildContext
from ale.protocols import ReadsScores, StepScorer
from ale.strict import Node, from_plain
from ale.types import Episode, ScoredEpisode, Task


@frozen(kw_only=True)
class Rescoring:
    """New scores of a run."""

    path: Path | None
    """File with the scores, in the run directory; None if there are none."""
    rows: Sequence[ScoredEpisode]


async def rescore(
    run: RunReader,
    host: Host,
    *,
    scorers: Sequence[Node] = (),
    overrides: Sequence[str] = (),
    concurrency: int = 1,
) -> Rescoring:
    """Run scorers on the graded episodes of a run, and store what they say.

    Credit that is computed again reads the new scores in place of the old ones; a resumed run keeps
    to its own. Each line is stored as soon as it is there. After a signal the episodes in work are
    finished, or cancelled after a second one. The same scorers then continue where they were
    stopped, unless others have scored the run since.

    Args:
        scorers: instead of those of the run's config; without either, nothing is done. Those of the
            config that read scores of theirs, such as `combined`, score again too.
        overrides: of the run's config, as ``--set`` gives them.
        concurrency: maximum number of episodes that are scored at the same time.

    Raises:
        InputError: a part can't be built.
        PluginError: a scorer broke its contract.
        StoreError: the scores can't be written.
    """
    node = from_plain(run.manifest["config"], file=str(run.path / "manifest.json"))
    config = merge(node, parse_overrides(overrides))
    listed = config.get("scorers")
    own = [*((listed and listed.items) or [])]
    chosen = [*scorers] or own
    if not chosen:
        return Rescoring(path=None, rows=())
    load_plugin_files(config, host.registry)
    context = BuildContext(run_id=str(run.manifest["run_id"]), environ=host.environ)
    made = _built(chosen, host, context)
    if scorers:
        made += _readers(made, _built(own, host, context))
    names = [each.name for each in made]
    kept = [row for row in run.step_scores() if row.scorer not in names]
    parts = [(each.name, each.scorer) for each in made]
    check_scorers(parts, None, known={row.scorer for row in kept})
    cut = config.get("chunker") or from_plain({"type": "interaction"})
    chunker = select(cut, "chunker", host.registry, path="chunker")
    scoring = Scoring(scorers=parts, chunker=build(chunker, context), chunker_name=chunker.name)
    values = [part_values(each.part) for each in made]
    key = _key([*values, part_values(chunker)])
    begun = _begun(run, key, names)
    said = StoredScores([*kept, *begun])
    secret = secret_names([run.manifest["config"], values])
    file = _File(run, Redactor(host.environ, secret), key, begun)
    try:
        with host.interrupt.listening():
            await scoring.score(_graded(run, host.interrupt), said, concurrency, file.add)
    except asyncio.CancelledError:
        if not host.interrupt.cancelled:
            raise
    finally:
        for each in made:
            await each.scorer.aclose()
        file.close()
    return Rescoring(path=file.path if file.rows else None, rows=file.rows)


@frozen
class _Made:
    """A scorer with its name in the stored scores."""

    name: str
    part: Selected
    scorer: StepScorer


def _built(chosen: Sequence[Node], host: Host, context: BuildContext) -> list[_Made]:
    picked = [
        select(each, "scorer", host.registry, path=f"scorers[{i}]") for i, each in enumerate(chosen)
    ]
    names = numbered(part.name for part in picked)
    return [
        _Made(name, part, build(part, context)) for name, part in zip(names, picked, strict=True)
    ]


def _readers(made: Sequence[_Made], own: Sequence[_Made]) -> list[_Made]:
    """Scorers of the config that read scores of others that are made anew, and theirs in turn."""
    new, found = {each.name for each in made}, []
    for each in own:
        reads = each.scorer.reads if isinstance(each.scorer, ReadsScores) else ()
        if each.name not in new and new & {*reads}:
            new.add(each.name)
            found.append(each)
    return found


def _key(values: Sequence[object]) -> str:
    """Equal for the same scorers with the same options, and the same chunker."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _begun(run: RunReader, key: str, names: Sequence[str]) -> list[ScoredEpisode]:
    """The lines of an earlier one that was stopped; none if it scored all, or others came after."""
    path = last_regrading(run.directory)
    if path is None or not path.stem.endswith(f"-{key}"):
        return []
    rows = [*Lines(path, ScoredEpisode)]
    done = {(row.episode_id, row.started_at, row.scorer) for row in rows}
    wanted = (
        (episode.id, episode.started_at, name)
        for episode in run.episodes
        if episode.reward is not None
        for name in names
    )
    return [] if all(each in done for each in wanted) else rows


def _graded(run: RunReader, interrupt: Interrupt) -> Iterator[tuple[Task, Episode]]:
    """The graded episodes with their tasks, read from disk one by one, until a signal."""
    tasks = {task.id: task for lines in (run.tasks, run.evaluation_tasks) for task in lines}
    for episode in run.episodes:
        if interrupt.draining:
            return
        if episode.reward is not None and episode.task_id in tasks:
            yield tasks[episode.task_id], episode


class _File:
    """The file of the new scores; it is made with its first line, or continued."""

    def __init__(
        self, run: RunReader, redactor: Redactor, key: str, begun: Sequence[ScoredEpisode]
    ) -> None:
        moment = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        before = last_regrading(run.directory) if begun else None
        self.path = before or run.directory / of_regrading(f"{moment}-{key}")
        self.rows: list[ScoredEpisode] = [*begun]
        self._redactor = redactor
        self._lines: Appender | None = None

    def add(self, row: ScoredEpisode) -> None:
        if self._lines is None:
            with store_errors(self.path):
                self.path.parent.mkdir(mode=0o700, exist_ok=True)
            self._lines = Appender(self.path, self._redactor)
        self._lines.append(row)
        self.rows.append(row)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
