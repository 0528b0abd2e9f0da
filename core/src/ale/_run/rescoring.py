"""Score the chunks of stored episodes, without sampling or grading."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

from ale._config.load import part_values, select
from ale._config.plugin_files import load_plugin_files
from ale._config.source import merge, parse_overrides
from ale._run.interrupt import Interrupt
from ale._run.parts import build, check_scorers, numbered
from ale._run.scoring import Scoring
from ale._run.start import Host, secret_names
from ale._store import Redactor, RunReader
from ale._store.codec import plain
from ale._store.scores import FOLDER, StoredScores
from ale.files import store_errors, write_whole
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

    Credit that is computed again reads the new scores in place of the old ones. After a signal the
    episodes in work are finished, or cancelled after a second one; what is scored is stored.

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
    rows: list[ScoredEpisode] = []
    try:
        with host.interrupt.listening():
            await scoring.score(_graded(run, host.interrupt), said, concurrency, rows.append)
    except asyncio.CancelledError:
        if not host.interrupt.cancelled:
            raise
    finally:
        for _, scorer in made:
            await scorer.aclose()
        path = _stored(run, rows, host.environ, [part_values(part) for part in picked])
    return Rescoring(path=path, rows=rows)


def _graded(run: RunReader, interrupt: Interrupt) -> Iterator[tuple[Task, Episode]]:
    """The graded episodes with their tasks, read from disk one by one, until a signal."""
    tasks = {task.id: task for lines in (run.tasks, run.evaluation_tasks) for task in lines}
    for episode in run.episodes:
        if interrupt.draining:
            return
        if episode.reward is not None and episode.task_id in tasks:
            yield tasks[episode.task_id], episode


def _stored(
    run: RunReader, rows: Sequence[ScoredEpisode], environ: Mapping[str, str], options: Any
) -> Path | None:
    if not rows:
        return None
    path = run.directory / FOLDER / f"regraded-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.jsonl"
    lines = [json.dumps(plain(row), ensure_ascii=False) + "\n" for row in rows]
    redactor = Redactor(environ, secret_names([run.manifest["config"], options]))
    with store_errors(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, redactor.scrub("".join(lines).encode()), private=True)
    return path
