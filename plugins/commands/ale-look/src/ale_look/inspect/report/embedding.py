"""The episodes that a report includes: chosen, read, and bounded in number and size."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from ale.errors import InputError
from ale.files import open_file
from ale.runs import Registry, RunReader
from ale_look.inspect.report.choosing import order
from ale_look.inspect.report.gathering import Facts, Head
from ale_look.inspect.report.reading import LogRatios, readable
from ale_look.inspect.report.worth import pictures


def embedded(
    run: RunReader, facts: Facts, most: int, most_bytes: int, registry: Registry | None = None
) -> Iterator[tuple[Head, str]]:
    """The chosen episodes as JSON that is safe in a page, in the order of training.

    Args:
        most: maximum number.
        most_bytes: maximum total size; an episode that no longer fits is skipped.
        registry: see `write_report`.
    """
    chosen = list(islice(order(facts.heads), most))
    ids = {head.id for head in chosen}
    credited = {row.episode_id: row for row in run.credits() if row.episode_id in ids}
    ratios = log_ratios(run.path, {(head.step, head.id) for head in chosen})
    worth = pictures(run, ids, registry)
    texts: list[tuple[Head, str]] = []
    left = most_bytes
    for head in chosen:
        episode = run.episodes.at(head.offset)
        forks = facts.forks.replayed(episode.task_id, episode.start)
        made = readable(episode, credited.get(head.id), ratios.get(head.id), forks)
        text = script_safe({**made, **worth.get(head.id, {})})
        size = len(text.encode("utf-8", "replace"))
        if size <= left:
            left -= size
            texts.append((head, text))
    yield from sorted(texts, key=lambda pair: (pair[0].step, pair[0].kind, pair[0].offset))


def log_ratios(path: Path, chosen: set[tuple[int, str]]) -> dict[str, LogRatios]:
    """The log-ratios in ``ratios/<step>.jsonl`` of these episodes, if the trainer wrote them.

    Raises:
        InputError: a line is malformed.
    """
    found: dict[str, LogRatios] = {}
    for step in {step for step, _ in chosen}:
        file = path / "ratios" / f"{step:05d}.jsonl"
        if not file.exists():
            continue
        with open_file(file) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    if (step, row["episode_id"]) in chosen:
                        found[row["episode_id"]] = row["log_ratios"]
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    message = f"expected episode_id and log_ratios: {error!r}"
                    raise InputError.of(message, file=str(file), line=number) from error
    return found


_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&'\u2028\u2029"})


def script_safe(value: Any) -> str:
    """JSON without characters that could end a script or an attribute."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _finite(value: Any) -> Any:
    """Replace infinities and NaN, which JSON does not have, by null."""
    if isinstance(value, Mapping):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_finite(child) for child in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
