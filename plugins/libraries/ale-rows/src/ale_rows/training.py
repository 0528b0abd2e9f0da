"""`ale dataset train`: any trainer, on scored rows instead of on a run that is going on."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from attrs import frozen

from ale.errors import InputError, Problem, StoreError
from ale.protocols import LLM, Policy, Trainer
from ale.types import Batch, CreditedGroup, Group, Rollout, StepReport
from ale_rows.reading import RowFile, refuse_schema
from ale_rows.rows import ScoredRow
from ale_rows.scoring import GroupKey
from ale_rows.writing import encode, replacing, said

Tell = Callable[[StepReport], object]


class _EpisodeHead(msgspec.Struct, gc=False):
    task_id: str
    step: int = 0
    start: str = ""


class _RowHead(msgspec.Struct, gc=False):
    schema: Literal[1]
    kind: Literal["scored"]
    run: str
    episode: _EpisodeHead


class _Begun(msgspec.Struct, frozen=True):
    """What the steps of a folder are steps of. Its file is ``training.json``."""

    rows: str
    """SHA-256 of the file."""
    groups: int
    schema: Literal[1] = 1


@frozen(kw_only=True)
class Trained:
    """What came of it."""

    steps: int
    """All that there are now."""
    resumed: int
    """Of these, steps that were done before."""
    checkpoint: Path | None
    """The newest; None where the file has no rows."""
    learned: bool | None
    """Did a step of this call make a new policy? None where none is trained in this process."""


async def train(
    source: Path,
    out: Path,
    trainer: Trainer,
    llm: LLM | None = None,
    *,
    groups: int = 8,
    epochs: int = 1,
    tell: Tell = lambda report: None,
) -> Trained:
    """Let a trainer learn from scored rows, some groups in each step, in the order of the file.

    A checkpoint is there after each step, whole or not at all: the same call goes on after the
    newest, where the rows and `groups` are those that it was begun with. What was done stands in
    ``events.jsonl``, a line per step. One step's groups are in memory, and where the others are.

    Args:
        source: JSON Lines of `ScoredRow`.
        out: folder for ``checkpoints/<step>``, ``events.jsonl`` and ``training.json``.
        trainer: not attached yet.
        llm: the model that it trains, where it trains one in this process. The episodes must be
            of this model: what a trainer makes of tokens that another policy sampled is its own
            affair, and many a one corrects for it only near its own policy.
        groups: in each step, at least 1.
        epochs: how often all are gone through, at least 1.
        tell: called after each step that is done now.

    Raises:
        InputError: the file has no scored rows, the trainer can't train this model, or `out` has
            checkpoints of another training.
        StoreError: a checkpoint can't be written or read.
    """
    where = list(_groups(source).values())
    steps = [where[i : i + groups] for i in range(0, len(where), groups)] * epochs
    trainer.attach(llm)
    _begin(out, source, groups)
    with RowFile(source, ScoredRow) as rows:
        done = await _restored(out, trainer, llm)
        if done > len(steps):
            message = f"{done} steps were done here, and {len(steps)} are asked for"
            raise InputError([Problem(message=message, file=str(out))])
        before = after = trainer.snapshot().version
        for step in range(done, len(steps)):
            made = tuple(_group(rows, offsets) for offsets in steps[step])
            report = await trainer.step(Batch(step=step, groups=made))
            if isinstance(llm, Policy):
                await llm.load_policy(trainer.snapshot())
            after = report.policy_version
            _save(trainer, _checkpoint(out, step))
            _note(out, report)
            tell(report)
    newest = _checkpoint(out, len(steps) - 1) if steps else None
    learned = after != before if isinstance(llm, Policy) else None
    return Trained(steps=len(steps), resumed=done, checkpoint=newest, learned=learned)


def _begin(out: Path, source: Path, groups: int) -> None:
    """Note what is trained on, or see that it is what was noted."""
    path = out / "training.json"
    with source.open("rb") as file:
        begun = _Begun(rows=hashlib.file_digest(file, "sha256").hexdigest(), groups=groups)
    try:
        noted = msgspec.json.decode(path.read_bytes(), type=_Begun)
    except FileNotFoundError:
        with replacing(path) as partial:
            partial.write_bytes(encode(begun) + b"\n")
        return
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} can't be read: {error}") from error
    if noted != begun:
        other = (
            "on other rows" if noted.rows != begun.rows else f"with {noted.groups} groups a step"
        )
        hint = "go on with what it was begun with, or choose another folder"
        raise InputError([Problem(message=f"begun {other}", file=str(out), hint=hint)])


def _groups(source: Path) -> dict[GroupKey, list[int]]:
    """Where the rows of each group stand: rollouts of one task from one start in one step."""
    groups: dict[GroupKey, list[int]] = {}
    with RowFile(source, _RowHead) as file:
        for offset, row in file:
            head = row.episode
            key = (row.run, head.step, head.task_id, head.start)
            groups.setdefault(key, []).append(offset)
    return groups


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


def _checkpoint(out: Path, step: int) -> Path:
    return out / "checkpoints" / f"{step:05d}"


async def _restored(out: Path, trainer: Trainer, llm: LLM | None) -> int:
    """How many steps are done; the trainer and the model stand where these left them."""
    saved = sorted((out / "checkpoints").glob("[0-9]*"))
    if not saved:
        return 0
    trainer.load(saved[-1])
    if isinstance(llm, Policy):
        await llm.load_policy(trainer.snapshot())
    return int(saved[-1].name) + 1


def _save(trainer: Trainer, target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    with said(target):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        trainer.save(partial)
        partial.replace(target)


def _note(out: Path, report: StepReport) -> None:
    line = {"event": "step_finished", "step": report.step, "metrics": report.metrics}
    line["policy_version"] = report.policy_version
    with said(out / "events.jsonl"), (out / "events.jsonl").open("ab") as file:
        file.write(encode(line) + b"\n")
