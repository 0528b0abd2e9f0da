"""`ale data collect`: the episodes of stored runs as one stream of rows."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from ale.errors import InputError
from ale.runs import BRANCHED_FROM, Lines, Notes, RunReader, only_runs
from ale.types import Split, ToolSpec
from ale_rows.report import Counts, Report
from ale_rows.rows import SCHEMA
from ale_rows.stored import EpisodeHead
from ale_rows.streaming import streaming
from ale_rows.writing import encode, refuse_overwriting, writing_lines

Which = Literal["train", "evaluation", "all"]
COPIED = "copied when their run branched from another one: collected with that"


def collect(
    runs: Sequence[Path],
    out: Path,
    *,
    split: Which = "train",
    broken: bool = False,
    tools: Sequence[ToolSpec] | None = None,
    verdicts: bool = False,
) -> Report:
    """Write the episodes of runs as rows: run by run, then by step, task, start, rollout and, of
    an evaluation, temperature.

    Lines are copied unchanged but for a reward of `verdicts`, one in memory at a time; memory holds
    their offsets. If a run has an episode twice, the later line is used. If a run branched from
    another of these, the episodes that it copied are written once, as the other's.

    Args:
        runs: run directories, and folders that hold some at any depth.
        out: JSON Lines of `EpisodeRow`.
        split: ``evaluation``: only evaluations, which `score` ignores; ``all``: both.
        broken: include episodes without a reward.
        tools: override the tools that the episodes have recorded, for runs stored before tools
            were recorded.
        verdicts: the reward is what people have said of the episode in their notes, 1 for good and
            0 for bad, whatever the criteria said; the others are left out, and so are those on
            which people disagree. Verdicts of single turns are not read.

    Raises:
        InputError: no run was found, two runs have the same id, a line is damaged, or both `broken`
            and `verdicts` are asked for.
        StoreError: `out` can't be written.
    """
    if broken and verdicts:
        message = "what broke says nothing of the agent, so a verdict is no reward for it"
        raise InputError.of(message, path="--broken", hint="--verdicts without --broken")
    readers = [RunReader(path) for path in found_runs(runs)]
    by_id = _by_id(readers)
    refuse_overwriting(out, *(reader.episodes.path for reader in readers))
    counts = Counts()
    written = 0
    heads_of_origin = lru_cache(maxsize=1)(_heads)  # the arms of an ablation have one origin
    with streaming(), writing_lines(out) as write:
        for reader in readers:
            opening = _opening(reader.manifest, tools)
            heads = _heads(reader)
            counts.seen["episodes"] += len(heads)
            copied = _copied(reader, by_id, heads_of_origin)
            notes = _notes(reader, counts) if verdicts else None
            selected = [
                (head, at)
                for head, at in heads
                if _wanted(head, split, broken or verdicts, copied, counts)
                and (notes is None or _judged(head, notes, counts))
            ]
            lines = _lines(reader.episodes.path, [at for _, at in selected])
            for (head, _), line in zip(selected, lines, strict=True):
                episode = line if notes is None else _rewarded(line, head, notes)
                write(opening + episode.rstrip(b"\r\n") + b"}\n")
                written += 1
    return counts.report(
        "collect",
        [reader.path for reader in readers],
        out,
        unit="episodes",
        written=written,
        options={"split": split, "broken": broken, "verdicts": verdicts},
        notes={"runs": len(readers)},
    )


def found_runs(paths: Sequence[Path]) -> list[Path]:
    """The run directories among and below `paths`, each once, sorted below each path.

    Raises:
        InputError: a path holds no run.
    """
    found: dict[Path, Path] = {}
    for path in only_runs(paths, below=True):
        if path.is_file():
            message = "a file, not a run directory or a folder that holds some"
            raise InputError.of(message, file=str(path))
        below = sorted(_below(path))
        if not below:
            RunReader(path)  # raises, with a suggestion
        for run in below:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _below(path: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(path):
        if "manifest.json" in files:
            yield Path(folder)
            inner.clear()


def _by_id(readers: Sequence[RunReader]) -> dict[str, RunReader]:
    """The runs by id; two with the same are refused, as their episodes would have the same ids."""
    seen: dict[str, RunReader] = {}
    for reader in readers:
        name = str(reader.manifest["run_id"])
        if name in seen:
            message = f"{seen[name].path} and {reader.path} are both the run '{name}'"
            raise InputError.of(message, hint="pass only one of them")
        seen[name] = reader
    return seen


def _copied(
    reader: RunReader,
    by_id: Mapping[str, RunReader],
    heads_of: Callable[[RunReader], Sequence[tuple[EpisodeHead, int]]],
) -> set[tuple[str, str]]:
    """Id and start time of each episode of the run that this one branched from, if it is there."""
    branched = reader.manifest.get(BRANCHED_FROM)
    if branched is None or (origin := by_id.get(Path(branched["run"]).name)) is None:
        return set()
    # A deterministic run's later episodes may have the same ids and times as the origin's.
    return {
        (head.id, head.started_at)
        for head, _ in heads_of(origin)
        if head.step < branched["steps"] + (head.split == "evaluation")
    }


def _heads(reader: RunReader) -> list[tuple[EpisodeHead, int]]:
    """The run's episodes with their offsets, in the order of the output."""
    path = reader.episodes.path
    known: dict[tuple[Split, int, str, str, int, float], tuple[EpisodeHead, int]] = {}
    for offset, head in Lines(path, EpisodeHead).with_offsets():
        if head.schema != 1:
            message = f"episode of schema {head.schema}; this version of ale-rows reads 1"
            raise InputError.of(message, file=str(path), path="schema")
        # The model's own temperature, None, comes first.
        temperature = -1.0 if head.temperature is None else head.temperature
        key = (head.split, head.step, head.task_id, head.start, head.rollout, temperature)
        known[key] = (head, offset)
    return [known[key] for key in sorted(known)]


def _wanted(
    head: EpisodeHead, split: Which, broken: bool, copied: Set[tuple[str, str]], counts: Counts
) -> bool:
    if split not in ("all", head.split):
        counts.dropped[f"of the split '{head.split}'"] += 1
        return False
    if head.reward is None and not broken:
        counts.dropped[head.no_reward] += 1
        return False
    if (head.id, head.started_at) in copied:
        counts.dropped[COPIED] += 1
        return False
    return True


def _notes(reader: RunReader, counts: Counts) -> Notes:
    """The notes on a run; an incomplete line of their file is counted."""
    found = reader.notes
    counts.seen.update({"marked good": 0, "marked bad": 0})
    if found.problem is not None:
        place = f"{found.problem.file}:{found.problem.line}"
        counts.leave_out("incomplete last line of the notes", place)
    return found


def _judged(head: EpisodeHead, notes: Notes, counts: Counts) -> bool:
    """Has the episode one verdict? One that broke is none of the agent's, whatever people say."""
    found = notes.verdicts(head)
    if head.failure is not None:
        counts.dropped[head.no_reward] += 1
    elif not found:
        counts.dropped["without a verdict"] += 1
    elif len(found) > 1:
        counts.dropped["people disagree: one says good, another one bad"] += 1
    else:
        counts.seen[f"marked {min(found)}"] += 1
        return True
    return False


def _rewarded(line: bytes, head: EpisodeHead, notes: Notes) -> bytes:
    """The line of an episode with the verdict as its reward; all else stays as it is."""
    fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    reward = float(notes.verdicts(head) == {"good"})
    return encode({**fields, "reward": reward})


def crediting_of(manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """`EpisodeRow.crediting` of a run's episodes."""
    config = manifest.get("config", {})
    found = {part: config[part] for part in ("chunker", "credit") if config.get(part)}
    return found or None


def _opening(manifest: Mapping[str, Any], tools: Sequence[ToolSpec] | None) -> bytes:
    head = {"schema": SCHEMA, "kind": "episode", "run": str(manifest["run_id"]), "tools": tools}
    head |= {"crediting": crediting_of(manifest)}
    return encode(head)[:-1] + b',"episode":'


def _lines(path: Path, offsets: Sequence[int]) -> Iterator[bytes]:
    if not offsets:
        return
    with path.open("rb", buffering=1 << 20) as file:
        at = 0
        for offset in offsets:
            if offset != at:  # a seek would empty the buffer
                file.seek(offset)
            line = file.readline()
            at = offset + len(line)
            yield line
