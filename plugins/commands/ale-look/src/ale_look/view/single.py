"""``report.html``: the page with one run in it, as a file that needs no network and no server."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from ale.files import replacing
from ale.runs import Registry, RunReader
from ale.values import NAME as VALUES
from ale_figures.charts import render
from ale_look.inspect.fitting import fitted
from ale_look.inspect.report.choosing import order
from ale_look.inspect.report.gathering import Facts, Head, gather
from ale_look.inspect.report.ratios import log_ratios
from ale_look.inspect.report.reading import TEXT, readable
from ale_look.inspect.report.worth import pictures
from ale_look.view.episodes import about, judged, listed
from ale_look.view.keys import key_of
from ale_look.view.noting import notes_of
from ale_look.view.pages import one_script, static_files
from ale_look.view.schemes import OtherSchemes, learns
from ale_look.view.spread import Spread
from ale_look.view.summary import summary
from ale_look.view.timeline import Timeline

NAME = "report.html"


def write_report(
    run: RunReader,
    target: Path,
    *,
    episodes: int,
    megabytes: float,
    registry: Registry | None = None,
) -> int:
    """Write the page of a stored or running run.

    The run is read twice, one episode at a time: once to count, once for the included episodes.

    Args:
        target: the file; replaced atomically.
        episodes: include at most this many.
        megabytes: total size limit of these episodes (10**6 bytes).
        registry: of the credit schemes that the file has; default: what is installed.

    Returns:
        Bytes written.

    Raises:
        InputError: a stored line is damaged.
        OSError: the target can't be written.
    """
    facts = gather(run)
    registry = registry or Registry.installed()
    schemes = OtherSchemes(run, registry, plugin_files=True)
    held = [*included(run, facts, episodes, int(1e6 * megabytes), registry, schemes)]
    with replacing(target, private=True) as partial, partial.open("wb") as file:
        drawn = render(
            "ale_look.view",
            "single.html",
            style=static_files()["view.css"].decode(),
            script=one_script(),
            run_id=str(facts.manifest["run_id"]),
            answers=_answers(run, facts, held, schemes.names),
        )
        for piece in drawn:
            file.write(piece.encode("utf-8", "replace"))
        return file.tell()


class Included(NamedTuple):
    """An episode that can be opened, as JSON that is safe in a page."""

    head: Head
    episode: str
    worth: str
    """V of its states and its credit by scheme; empty where no value was measured."""
    credit: str
    """Its credit under other schemes; empty of an episode that nothing learns from."""


def _answers(
    run: RunReader, facts: Facts, held: list[Included], schemes: list[str]
) -> Iterator[tuple[str, str]]:
    """Addresses below ``api/``, and what they answer."""
    path = run.path.resolve()
    key = key_of(path, path)
    one = {"run": key, "episodes": len(facts.heads), "held": len(held)}
    yield "about.json", script_safe({"live": False, "schemes": schemes, "folder": "", "one": one})
    credit = Spread(run.path).chart()
    yield f"run/{key}.json", script_safe({"key": key, **summary(facts, credit)})
    heads = listed([each.head for each in held])
    yield f"run/{key}/episodes.json", script_safe(heads)
    yield f"run/{key}/timeline.json", script_safe(Timeline(run.path).update())
    notes = notes_of(run, [each.head for each in held])
    yield f"run/{key}/notes.json", script_safe(notes)
    for each in held:
        yield f"run/{key}/episode/{each.head.offset}.json", each.episode
        for part, text in (("worth", each.worth), ("credit", each.credit)):
            if text:
                yield f"run/{key}/{part}/{each.head.offset}.json", text


def included(
    run: RunReader,
    facts: Facts,
    most: int,
    most_bytes: int,
    registry: Registry,
    schemes: OtherSchemes,
) -> Iterator[Included]:
    """The chosen episodes, in the order of training.

    Args:
        most: maximum number.
        most_bytes: maximum total size; an episode that no longer fits is skipped.
        registry: see `write_report`.
        schemes: those of the run, for the credit of each episode.
    """
    chosen = [*islice(order(facts.heads), most)]
    read = _Reading(run, facts, chosen, registry, schemes)
    found: list[Included] = []
    left = most_bytes
    for head in chosen:
        made = read.episode(head)
        size = sum(len(text.encode("utf-8", "replace")) for text in made[1:])
        if size <= left:
            left -= size
            found.append(made)
    yield from sorted(found, key=lambda each: (each.head.step, each.head.kind, each.head.offset))


class _Reading:
    """Reads what other files have about the chosen episodes, once for all of them."""

    def __init__(
        self,
        run: RunReader,
        facts: Facts,
        chosen: list[Head],
        registry: Registry,
        schemes: OtherSchemes,
    ) -> None:
        ids = {head.id for head in chosen}
        self._run, self._facts, self._index = run, facts, run.index()
        self._credited = {row.episode_id: row for row in run.credits() if row.episode_id in ids}
        self._ratios = log_ratios(run.path, {(head.step, head.id) for head in chosen})
        self._worth = pictures(run, ids, registry)
        self._credits = schemes.credits(
            {(head.step, head.task_id) for head in chosen if learns(head)}
        )
        self._valued = (run.path / VALUES).exists()
        wanted = {head.task_id for head in chosen}
        tasks = chain(run.tasks, run.evaluation_tasks)
        self._goals = {task.id: task.goal[:TEXT] for task in tasks if task.id in wanted}

    def episode(self, head: Head) -> Included:
        episode = self._run.episodes.at(head.offset)
        forks = self._facts.forks.replayed(episode.task_id, episode.start)
        ratios = self._ratios.get(head.id)
        stored, scores = self._credited.get(head.id), self._run.scores_of(episode)
        credited, scored, problems = fitted(episode, stored, scores)
        of = about(
            episode,
            self._goals.get(head.task_id, ""),
            learned_in=self._index.learned_in(episode),
            valued=self._valued,
            names=self._facts.names,
            problems=problems,
        )
        of |= judged(episode, credited, scored)
        made = {**readable(episode, credited, ratios, forks), **of, "offset": head.offset}
        worth = self._worth.get(head.id)
        credit = script_safe(self._credits.get(head.id, [])) if learns(head) else ""
        return Included(head, script_safe(made), script_safe(worth) if worth else "", credit)


_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def script_safe(value: Any) -> str:
    """JSON without characters that could end a script."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _finite(value: Any) -> Any:
    """Replace infinities and NaN, which JSON does not have, by null."""
    if isinstance(value, Mapping):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
