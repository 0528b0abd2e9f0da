"""Strict reading of a training's configuration file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from ale.runs import apply_overrides
from ale.strict import Node, describe, read_yaml, structure
from ale_trainer_trl.learning.options import DpoTraining, GrpoTraining

T = TypeVar("T", DpoTraining, GrpoTraining)
PATHS = {"dataset_path", "output_dir"}


def read_training(cls: type[T], path: Path, overrides: Sequence[str] = ()) -> T:
    """Read the configuration of a training.

    Args:
        cls: `DpoTraining` or `GrpoTraining`.
        path: YAML; the keys are the fields of `cls`. Paths in it are relative to the working
            folder, as those of TRL's own commands: a model may be a folder or a name.
        overrides: values for single keys, such as ``lora.r=8``.

    Raises:
        InputError: with every problem, each with file, line and path.
    """
    node = read_yaml(path)
    if node.value is None:
        node = Node({}, node.file, node.line)
    if node.mapping is None:
        raise node.error(f"expected a mapping, found {describe(node.value)}")
    return structure(_from_working_folder(apply_overrides(node, overrides)), cls)


def _from_working_folder(node: Node) -> Node:
    """Resolve paths relative to the working folder, not to the file's folder."""
    entries = dict(node.mapping or {})
    for key in PATHS & entries.keys():
        given = entries[key]
        if isinstance(given.value, str):
            whole = str(Path.cwd() / Path(given.value).expanduser())
            entries[key] = Node(whole, given.file, given.line)
    return Node(entries, node.file, node.line)
