"""`ale train rows`: train on scored rows instead of in a run."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from attrs import frozen

from ale.errors import InputError, StoreError
from ale.files import replacing, store_errors, write_whole
from ale.protocols import LLM, KnowsTokenizer, Policy, Trainer
from ale.runs import Checkpoints, lock
from ale.text import counted
from ale.types import Batch, CreditedGroup, Group, Rollout, StepReport
from ale_rows.files import read_rows
from ale_rows.reading import RowFile, refuse_schema
from ale_rows.rows import ScoredRow
from ale_rows.stored import EpisodeHead, GroupKey
from ale_rows.writing import encode

OnStep = Callable[[StepReport], object]


class _MetadataHead(msgspec.Struct, gc=False):
    tokenizer: Any = None


class _Ids(msgspec.Struct, gc=False):
    """That there are token ids; they are skipped."""


class _CompletionHead(msgspec.Struct, gc=False):
    tokens: _Ids | None = None


class _TurnHead(msgspec.Struct, gc=False):
    completion: _CompletionHead


class _TrajectoryHead(msgspec.Struct, gc=False):
    turns: tuple[_TurnHead, ...] = ()


class _EpisodeHead(EpisodeHead, gc=False):
    metadata: _MetadataHead = msgspec.field(default_factory=_MetadataHead)
    trajectory: _TrajectoryHead = msgspec.field(default_factory=_TrajectoryHead)


class _RowHead(msgspec.Struct, gc=False):
    schema: Literal[1]
    kind: Literal["scored"]
    run: str
    episode: _EpisodeHead


class _Event(msgspec.Struct, gc=False):
    step: int


class _Training(msgspec.Struct, frozen=True):
    """The data of the training in a folder. Its file is ``training.json``."""

    rows: str
    """SHA-256 of the file of rows."""
    groups: int
    options: dict[str, Any] | None = None
    """Options of the trainer; None if not known, as in files of earlier versions."""
    llm: dict[str, Any] | None = None
    """The config's section of the model, with which `ale model` exports it; None: not known."""
    schema: Literal[1] = 1


@frozen(kw_only=True)
class Trained:
    """The outcome of `train`."""

    steps: int
    """Steps done in total."""
    resumed: int
    """The number of these steps that earlier calls did."""
    checkpoint: Path
    """The newest checkpoint."""
    learned: bool | None
    """Whether a step of this call changed the policy; None if no policy is trained here."""


def check_scored(source: Path) -> None:
    """Check that a file begins with a scored row; the others are not read.

    Raises:
        InputError: it has no rows, or the first is not a scored one.
    """
    if next(read_rows(source, ScoredRow), None) is None:
        expected = "scored rows: what `ale data score` writes"
        raise InputError.of("the file has no rows", file=str(source), expected=expected)


async def train(
    source: Path,
    out: Path,
    trainer: Trainer,
    llm: LLM | None = None,
    *,
    groups: int = 8,
    epochs: int = 1,
    options: Mapping[str, Any] | None = None,
    keep: int | None = None,
    keep_every: int | None = None,
    section: Mapping[str, Any] | None = None,
    on_step: OnStep = lambda report: None,
) -> Trained:
    """Train on scored rows, some groups in each step, in the order of the file.

    Each step ends with a checkpoint, written atomically: the same call resumes after the newest, if
    the rows, `groups` and `options` are the same. ``events.jsonl`` has a line per step. Memory
    holds one step's groups, and the offsets of the others.

    Args:
        source: JSON Lines of `ScoredRow`.
        out: folder for ``checkpoints/<step>``, ``events.jsonl`` and ``training.json``.
        trainer: not attached yet.
        llm: the model to train, if one is trained in this process. The episodes should come from
            this model: most objectives correct for another policy's tokens only if it is close.
        groups: number of groups in each step, at least 1.
        epochs: passes over the rows, at least 1.
        options: what the trainer was built with, in JSON types; a training is only resumed with
            the same.
        keep: number of newest checkpoints to keep; None keeps all.
        keep_every: also keep the checkpoint after each multiple of so many steps.
        section: what `llm` was built with, in JSON types; stored for who exports the model.
        on_step: called after each step of this call.

    Raises:
        InputError: the file has no rows, or rows that are not scored or of another tokenizer than
            the model's; no row has token ids, and `llm` is trained by token; the trainer can't
            train this model; or `out` has a run or checkpoints of another training.
        StoreError: a checkpoint or ``events.jsonl`` can't be written or read, or another process
            trains in `out`.
    """
    check_scored(source)
    where = list(_groups(source, llm).values())
    steps = [where[i : i + groups] for i in range(0, len(where), groups)] * epochs
    trainer.attach(llm)
    checkpoints = _checkpoints(out)
    with _claimed(out), RowFile(source, ScoredRow) as rows:
        _begin(out, source, groups, options, section)
        done = await _restored(checkpoints, trainer, llm)
        if done > len(steps):
            message = f"{done} steps are done, more than the {len(steps)} of this call"
            raise InputError.of(message, file=str(out))
        _forget(out, done)
        before = after = trainer.snapshot().version
        for step in range(done, len(steps)):
            made = tuple(_group(rows, offsets) for offsets in steps[step])
            report = await trainer.step(Batch(step=step, groups=made))
            if isinstance(llm, Policy):
                await llm.load_policy(trainer.snapshot())
            after = report.policy_version
            _note(out, report)  # before its checkpoint: a killed training may lose no line
            _save(trainer, checkpoints.folder(step))
            checkpoints.keep_newest(keep, keep_every)
            on_step(report)
    learned = after != before if isinstance(llm, Policy) else None
    newest = checkpoints.folder(len(steps) - 1)
    return Trained(steps=len(steps), resumed=done, checkpoint=newest, learned=learned)


@contextmanager
def _claimed(out: Path) -> Iterator[None]:
    """Make and lock the folder for the block.

    Raises:
        InputError: the folder has a run or checkpoints of another training.
        StoreError: another process trains there, or the folder can't be written.
    """
    others = _checkpoints(out).steps() and not (out / "training.json").exists()
    if others or (out / "manifest.json").exists():
        message, hint = "a run or another training is stored there", "choose another folder"
        raise InputError.of(message, file=str(out), hint=hint)
    with store_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    descriptor = lock(out)
    try:
        yield
    finally:
        os.close(descriptor)


def _begin(
    out: Path,
    source: Path,
    groups: int,
    options: Mapping[str, Any] | None,
    section: Mapping[str, Any] | None,
) -> None:
    """Write ``training.json``, or check that it matches that of the steps that are done."""
    path = out / "training.json"
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    plain, llm = (
        None if each is None else json.loads(json.dumps(each)) for each in (options, section)
    )
    training = _Training(rows=digest, groups=groups, options=plain, llm=llm)
    if not _checkpoints(out).steps():
        write_whole(path, encode(training) + b"\n")
        return
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Training)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} can't be read: {error}") from error
    if other := next(_differences(stored, training), None):
        hint = "resume with the same rows, groups and options, or choose another folder"
        raise InputError.of(f"started {other}", file=str(out), hint=hint)


def _differences(stored: _Training, now: _Training) -> Iterator[str]:
    if stored.rows != now.rows:
        yield "on other rows"
    if stored.groups != now.groups:
        yield f"with {counted(stored.groups, 'group')} a step"
    if stored.options is not None and now.options is not None:
        before, after = dict(_flat(stored.options)), dict(_flat(now.options))
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                yield f"with {key} {before.get(key)!r}, which is {after.get(key)!r} now"


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _groups(source: Path, llm: LLM | None) -> dict[GroupKey, list[int]]:
    """Offsets of the rows of each group: rollouts of one task from one start in one step.

    Raises:
        InputError: a row's token ids are known to be of another tokenizer than the model's; or
            no row has any, and the model is a policy, which is trained by token.
    """
    own = llm.tokenizer_id if isinstance(llm, KnowsTokenizer) else None
    groups: dict[GroupKey, list[int]] = {}
    any_ids = False
    with RowFile(source, _RowHead) as file:
        for number, (offset, row) in enumerate(file, 1):
            theirs = row.episode.metadata.tokenizer
            if own is not None and theirs is not None and theirs != own:
                raise _other_tokenizer(source, number, theirs, own)
            groups.setdefault(row.episode.group(row.run), []).append(offset)
            any_ids = any_ids or any(t.completion.tokens for t in row.episode.trajectory.turns)
    if not any_ids and isinstance(llm, Policy):
        raise _without_ids(source)
    return groups


def _without_ids(source: Path) -> InputError:
    return InputError.of(
        "no answer has token ids, so that no step could change the policy",
        file=str(source),
        path="episode.trajectory.turns[].completion.tokens",
        expected="rows of a model that gives token ids, such as llm.type policy",
        hint="ale proxy --ask-tokens and return_token_ids of llm.type openai ask for them; what "
        "ale data sft writes needs none",
    )


def _other_tokenizer(source: Path, line: int, theirs: str, own: str) -> InputError:
    message = (
        f"sampled with the tokenizer {theirs}, and the model's is {own}: ids mean other tokens"
    )
    return InputError.of(
        message,
        file=str(source),
        line=line,
        path="episode.metadata.tokenizer",
        expected="rows of a model with the vocabulary of this one",
        hint="train the model that sampled them; or make rows without ids of them: ale data sft",
    )


def _group(rows: RowFile[ScoredRow], offsets: Sequence[int]) -> CreditedGroup:
    read = [rows.at(offset) for offset in offsets]
    for row in read:
        refuse_schema(row.episode, rows.path)
    group = Group(
        task_id=read[0].episode.task_id,
        rollouts=tuple(Rollout(episode=row.episode, chunks=row.chunks) for row in read),
        batch=read[0].batch,
    )
    return CreditedGroup(group=group, credits=tuple(row.credit for row in read))


def _checkpoints(out: Path) -> Checkpoints:
    return Checkpoints(out / "checkpoints")


async def _restored(checkpoints: Checkpoints, trainer: Trainer, llm: LLM | None) -> int:
    """Restore the newest checkpoint; returns the number of steps done."""
    newest = checkpoints.newest()
    if newest >= 0:
        trainer.load(checkpoints.folder(newest))
        if isinstance(llm, Policy):
            await llm.load_policy(trainer.snapshot())
    return newest + 1


def _save(trainer: Trainer, target: Path) -> None:
    with store_errors(target), replacing(target) as partial:
        partial.mkdir()
        trainer.save(partial)


def _forget(out: Path, done: int) -> None:
    """Remove the lines of steps that were killed before their checkpoint was complete."""
    path = out / "events.jsonl"
    with store_errors(path):
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        # The last one may have been cut off.
        kept = [line for line in lines if line.endswith(b"\n")]
        while kept and _step_of(kept[-1], path, len(kept)) >= done:
            kept.pop()
        if kept != lines:
            write_whole(path, b"".join(kept))


def _step_of(line: bytes, path: Path, number: int) -> int:
    try:
        return msgspec.json.decode(line, type=_Event).step
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}:{number} can't be read: {error}") from error


def _note(out: Path, report: StepReport) -> None:
    line = {"event": "step_finished", "step": report.step, "metrics": report.metrics}
    line["policy_version"] = report.policy_version
    with store_errors(out / "events.jsonl"), (out / "events.jsonl").open("ab") as file:
        file.write(encode(line) + b"\n")
