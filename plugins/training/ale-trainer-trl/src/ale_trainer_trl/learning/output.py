"""The output folder of a training: checkpoints and record."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ale.files import write_whole
from ale_trainer_trl.learning.errors import input_error
from ale_trainer_trl.learning.options import Training
from ale_trainer_trl.learning.packages import NEEDED, installed
from ale_trainer_trl.learning.progress import Trained

RECORD = "training.json"
WORK = "work"
"""Folder inside ``output_dir`` for files that are needed only while training."""
SCHEMA = 1
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


def prepare(training: Training, method: str, data: str) -> tuple[Path | None, Trained | None]:
    """Create the folder, or find what an earlier call left in it.

    Returns:
        The checkpoint to resume from, if any; and the result, if already trained.

    Raises:
        InputError: the folder holds another training, or something else.
    """
    folder, file = training.output_dir, training.output_dir / RECORD
    others = sorted(each.name for each in folder.glob("[!.]*") if each.name != WORK)
    if others and not file.exists():
        raise input_error(
            f"{folder} holds {others[0]}, and no training",
            path="output_dir",
            hint="another output_dir: files of the same names would be replaced",
        )
    mine = identity(training, data)
    if training.resume == "never":
        for old in folder.glob("checkpoint-*"):
            shutil.rmtree(old)
        file.unlink(missing_ok=True)
    if file.exists():
        known = _record(file)
        if known.get("identity") != mine or known.get("method") != method:
            raise input_error(
                f"{folder} holds another training: {_difference(known, training, method)}",
                path="output_dir",
                hint="another output_dir, or resume: never to start again in this one",
            )
        done = known.get("trained")
        if done is not None:
            return None, Trained(**{**done, "output_dir": folder, "already_trained": True})
        return last_checkpoint(folder), None
    folder.mkdir(parents=True, exist_ok=True)
    write_record(training, method, data, None)
    return None, None


def _record(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise input_error(f"{file} can't be read: {error}", path="output_dir") from error
    if not isinstance(known, dict) or known.get("schema") != SCHEMA:
        raise input_error(f"{file} is no record of a training, schema {SCHEMA}", path="output_dir")
    return known


def _difference(known: Mapping[str, Any], training: Training, method: str) -> str:
    if known.get("method") != method:
        return f"of method {known.get('method')}"
    before, now = known.get("training", {}), plain(training)
    changed = [k for k in now if k not in _FREE and before.get(k) != now[k]]
    if not changed:
        return "of other rows"
    key = changed[0]
    return f"{key} was {before.get(key)!r} and is {now[key]!r}"


def write_record(training: Training, method: str, data: str, trained: Trained | None) -> None:
    """Write options, data hash and versions, and after the end the result."""
    done = None if trained is None else attrs.asdict(trained)
    if done is not None:
        done.pop("output_dir")
    record = {
        "schema": SCHEMA,
        "method": method,
        "identity": identity(training, data),
        "data": data,
        "training": plain(training),
        "versions": {name: installed(name) for name in ("ale-trainer-trl", *NEEDED)},
        "trained": done,
    }
    write_whole(training.output_dir / RECORD, json.dumps(record, indent=2) + "\n")
