"""The output folder of a training: lock, checkpoints and record."""

import errno
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
from safetensors import SafetensorError, safe_open

from ale.errors import InputError, StoreError
from ale.files import store_errors, write_whole
from ale.runs import lock
from ale_trainer_trl.learning.options import Training
from ale_trainer_trl.learning.packages import NEEDED, installed
from ale_trainer_trl.learning.progress import Trained

RECORD = "training.json"
WORK = "work"
"""Folder inside ``output_dir`` for files that are needed only while training."""
SCHEMA = 1
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
# Options that do not affect the weights.
_FREE = {
    "output_dir",
    "dataset_path",
    "save_steps",
    "keep_checkpoints",
    "log_steps",
    "resume",
    "merge",
}


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make and lock the folder of a training for the block; one that stays empty is removed.

    Raises:
        StoreError: another process trains there, or the folder can't be written.
    """
    with store_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = lock(folder)
    try:
        with _write_errors(folder):
            yield
    finally:
        shutil.rmtree(folder / WORK, ignore_errors=True)
        if not (folder / RECORD).exists():  # the folder is not that of a training
            (folder / ".lock").unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        os.close(descriptor)


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """Turn the errors for a full or read-only disk, of several types, into a `StoreError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise _unwritable(folder, error.strerror or str(error)) from error
    except (RuntimeError, SafetensorError) as error:
        # torch.save and safetensors give no error number.
        if not any(sign in str(error) for sign in ("inline_container", "No space left")):
            raise
        raise _unwritable(folder, str(error).splitlines()[0]) from error


def _unwritable(folder: Path, reason: str) -> StoreError:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return StoreError(
        f"{folder} can't be written: {reason} ({shutil.disk_usage(there).free / 1e6:,.1f} MB are "
        "free there); the same command resumes from the last complete checkpoint"
    )


def identity(training: Training, data: str) -> str:
    """Hash of everything that determines the weights; a checkpoint with another is not resumed.

    Args:
        data: fingerprint of the training data.
    """
    relevant = {k: v for k, v in plain(training).items() if k not in _FREE}
    text = json.dumps({"training": relevant, "data": data}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def plain(training: Training) -> dict[str, Any]:
    """The options in JSON types."""
    return attrs.asdict(
        training, value_serializer=lambda _, __, v: str(v) if isinstance(v, Path) else v
    )


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint, which is one with a state file, as that is written last."""
    numbered = []
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        number = state.parent.name.removeprefix("checkpoint-")
        if number.isdecimal() and _reads(state):
            numbered.append((int(number), state.parent))
    return max(numbered, default=(0, None))[1]


def _reads(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return True


def check_readable(checkpoint: Path) -> None:
    """Check that no file of a checkpoint was cut off, as after a power loss.

    Raises:
        StoreError: one was.
    """
    for path in sorted(checkpoint.iterdir()):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
            elif path.suffix in (".pt", ".pth", ".bin"):
                zipfile.ZipFile(path).close()
        except (OSError, SafetensorError, zipfile.BadZipFile) as error:
            raise StoreError(
                f"{path} is damaged: {error}; without the folder {checkpoint.name}, the same "
                "command resumes from the checkpoint before it, or starts again"
            ) from error


def prepare(training: Training, data: str) -> tuple[Path | None, Trained | None]:
    """Create the folder, or find what an earlier call left in it.

    Returns:
        The checkpoint to resume from, if any; and the result, if already trained.

    Raises:
        InputError: the folder holds another training, or something else.
        StoreError: its last checkpoint is damaged.
    """
    folder, file = training.output_dir, training.output_dir / RECORD
    others = sorted(each.name for each in folder.glob("[!.]*") if each.name != WORK)
    if others and not file.exists():
        raise InputError.of(
            f"{folder} holds {others[0]}, and no training",
            path="output_dir",
            hint="another output_dir: files of the same names would be replaced",
        )
    mine = identity(training, data)
    known = _record(file) if file.exists() and training.resume != "never" else {}
    last = last_checkpoint(folder)
    if training.resume == "never" or (known.get("trained") is None and last is None):
        for old in folder.glob("checkpoint-*"):
            shutil.rmtree(old)
        known = {}  # nothing was learned that another training would replace
    if known:
        if known.get("identity") != mine or known.get("method") != training.method:
            raise InputError.of(
                f"{folder} holds another training: {_difference(known, training)}",
                path="output_dir",
                hint="another output_dir, or resume: never to start again in this one",
            )
        done = known.get("trained")
        if done is not None:
            return None, Trained(**{**done, "output_dir": folder, "already_trained": True})
        if last is not None:
            check_readable(last)
        return last, None
    folder.mkdir(parents=True, exist_ok=True)
    write_record(training, data, None)
    return None, None


def _record(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise InputError.of(f"{file} can't be read: {error}", path="output_dir") from error
    if not isinstance(known, dict) or known.get("schema") != SCHEMA:
        raise InputError.of(
            f"{file} is no record of a training, schema {SCHEMA}", path="output_dir"
        )
    return known


def _difference(known: Mapping[str, Any], training: Training) -> str:
    if known.get("method") != training.method:
        return f"of method {known.get('method')}"
    before, now = known.get("training", {}), plain(training)
    changed = [k for k in now if k not in _FREE and before.get(k) != now[k]]
    if not changed:
        return "of other rows"
    key = changed[0]
    return f"{key} was {before.get(key)!r} and is {now[key]!r}"


def write_record(training: Training, data: str, trained: Trained | None) -> None:
    """Write options, data hash and versions, and after the end the result."""
    done = None if trained is None else attrs.asdict(trained)
    if done is not None:
        done.pop("output_dir")
    record = {
        "schema": SCHEMA,
        "method": training.method,
        "identity": identity(training, data),
        "data": data,
        "training": plain(training),
        "versions": {name: installed(name) for name in ("ale-trainer-trl", *NEEDED)},
        "trained": done,
    }
    write_whole(training.output_dir / RECORD, json.dumps(record, indent=2) + "\n")
