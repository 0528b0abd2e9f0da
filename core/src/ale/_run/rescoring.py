"""Score the chunks of stored episodes, without sampling or grading."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from ale._config.load import part_values, select
from ale._config.plugin_files import load_plugin_files
from ale._config.source import merge, parse_overrides
from ale._run.interrupt import Interrupt
from ale._run.parts import build, check_scorers, numbered
from ale._run.scoring import Scoring
from ale._run.start import Host, secret_names
from ale._store import Redactor, RunReader
from ale._store.lines import Appender
from ale._store.scores import StoredScores, of_regrading
from ale.files import store_errors
from ale.plugin import BuildContext
from ale.strict import Node, from_plain
from ale.types import FEEDBACK, Episode, ScoredEpisode, Task


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
    finished, or cancelled after a second one.

    Args:
        scorers: instead of those of the run's config; without either, nothing is done.
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
    chosen = [*scorers] or [*((listed and listed.items) or [])]
    if not chosen:
        return Rescoring(path=None, rows=())
    load_plugin_files(config, host.registry)
    picked = [
        select(each, "scorer", host.registry, path=f"scorers[{i}]") for i, each in enumerate(chosen)
    ]
    context = BuildContext(run_id=str(run.manifest["run_id"]), environ=host.environ)
    names = numbered(part.name for part in picked)
    made = [(name, build(part, context)) for name, part in zip(names, picked, strict=True)]
    check_scorers(made, None)
    cut = config.get("chunker") or from_plain({"type": "interaction"})
    chunker = select(cut, "chunker", host.registry, path="chunker")
    scoring = Scoring(scorers=made, chunker=build(chunker, context), chunker_name=chunker.name)
    said = StoredScores(row for row in run.step_scores() if row.scorer == FEEDBACK)
    secret = secret_names([run.manifest["config"], [part_values(part) for part in picked]])
    file = _File(run, Redactor(host.environ, secret))
    try:
        with host.interrupt.listening():
            await scoring.score(_graded(run, host.interrupt), said, concurrency, file.add)
    except asyncio.CancelledError:
        if not host.interrupt.cancelled:
            raise
    finally:
        for _, scorer in made:
            await scorer.aclose()
        file.close()
    return Rescoring(path=file.path if file.rows else None, rows=file.rows)


def _graded(run: RunReader, interrupt: Interrupt) -> Iterator[tuple[Task, Episode]]:
    """The graded episodes with their tasks, read from disk one by one, until a signal."""
    tasks = {task.id: task for lines in (run.tasks, run.evaluation_tasks) for task in lines}
    for episode in run.episodes:
        if interrupt.draining:
            return
        if episode.reward is not None and episode.task_id in tasks:
            yield tasks[episode.task_id], episode


class _File:
    """The file of the new scores; it is made with its first line."""

    def __init__(self, run: RunReader, redactor: Redactor) -> None:
        self.path = run.directory / of_regrading(f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
        self.rows: list[ScoredEpisode] = []
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
