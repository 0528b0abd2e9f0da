"""Copy a run as it was after some steps, to continue it with another config."""

import itertools
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ale._store.checkpoints import Checkpoints
from ale._store.codec import indented
from ale._store.directory import EARLIER_S, RunReader
from ale._store.groups import FILE as GROUPS
from ale._store.groups import GroupKey, Groups
from ale._store.scores import FOLDER as SCORES
from ale.errors import InputError
from ale.files import remove_partial, replacing, store_errors, write_whole

_SESSIONS = ("run_started", "run_resumed", "run_finished")
_COPIED = ("tasks.jsonl", "evaluation_tasks.jsonl")
BRANCHED_FROM = "branched_from"


class _Head(msgspec.Struct):
    """The test whether a stored line belongs to the first steps."""

    step: int = -1
    split: str = "train"
    event: str = ""
    task_id: str = ""
    start: str = ""


def branch_run(
    source: Path, target: Path, *, steps: int, config: Mapping[str, Any], evaluated: bool = True
) -> None:
    """Copy a run as it was after its first steps; `ale run --resume` continues the copy.

    The copy has the episodes, scores, credits and events of these steps, and the last one's
    checkpoint: weights, optimiser and random state. Branches of one run are equal up to there.

    Args:
        target: a folder that does not exist. It is written atomically.
        steps: at least 1.
        config: the whole config of the copy, as in a manifest. It has to have the same tasks and
            the same model.
        evaluated: copy the evaluation after these steps too; else the copy makes its own.

    Raises:
        InputError: `source` is no run, or has no checkpoint after these steps.
        StoreError: the copy can't be written.
    """
    reader = RunReader(source)
    checkpoint = Checkpoints(source / "checkpoints").folder(steps - 1)
    if not checkpoint.is_dir():
        hint = "run.keep_checkpoints: null keeps them all"
        raise InputError.of(f"no checkpoint after {steps} steps", file=str(source), hint=hint)
    run = {**reader.manifest, "run_id": target.name, "config": config}
    run["seed"] = config["run"]["seed"]
    if "uid" in run:
        run["uid"] = os.urandom(6).hex()
    run[BRANCHED_FROM] = {"run": str(source), "steps": steps}
    run.pop("outcome", None)
    run.pop(EARLIER_S, None)
    stream = reader.index().stream
    belongs = _of_first(steps, steps if evaluated else steps - 1, stream)
    remove_partial(target)
    with store_errors(target), replacing(target, private=True) as partial:
        partial.mkdir(parents=True)
        for folder in ("credits", SCORES):
            _copy_first(source / folder, partial / folder, steps)
        for name in _COPIED:
            if (source / name).exists():
                shutil.copyfile(source / name, partial / name)
        _copy_lines(source / "episodes.jsonl", partial, belongs)
        if stream is not None:
            _copy_lines(source / GROUPS, partial, _of_first_groups(steps, stream))
        _copy_lines(
            source / "events.jsonl",
            partial,
            lambda head: head.event not in _SESSIONS and belongs(head),
        )
        # Linked, not copied: checkpoints are large, and never changed.
        shutil.copytree(
            checkpoint, partial / "checkpoints" / checkpoint.name, copy_function=os.link
        )
        write_whole(partial / "manifest.json", indented(run))


def _of_first(steps: int, last_evaluation: int, stream: Groups | None) -> Callable[[_Head], bool]:
    """Does a line belong to the first steps? Of a stream, its buffer does not."""

    def belongs(head: _Head) -> bool:
        if head.split == "evaluation" or head.event == "evaluation_finished":
            return head.step <= last_evaluation
        if stream is None or head.event:
            return head.step < steps
        return stream.used_before(GroupKey(head.step, head.task_id, head.start), steps)

    return belongs


def _of_first_groups(steps: int, stream: Groups) -> Callable[[_Head], bool]:
    """Does a line about groups belong to the first steps? The copy may plan others after these."""
    planned, drawn = itertools.count(), stream.drawn_before(steps)

    def belongs(head: _Head) -> bool:
        return next(planned) < drawn if head.event == "planned" else head.step < steps

    return belongs


def _copy_first(source: Path, target: Path, steps: int) -> None:
    """Copy the files of a folder that are those of the first steps, or of no step."""
    if not source.exists():
        return
    target.mkdir()
    for path in sorted(source.glob("*.jsonl")):
        if not path.stem.isdecimal() or int(path.stem) < steps:
            shutil.copyfile(path, target / path.name)


def _copy_lines(source: Path, folder: Path, belongs: Callable[[_Head], bool]) -> None:
    decoder = msgspec.json.Decoder(_Head)
    with source.open("rb") as lines, (folder / source.name).open("wb") as out:
        for line in lines:
            if line.endswith(b"\n") and belongs(decoder.decode(line)):
                out.write(line)
