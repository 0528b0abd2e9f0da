"""Exports the model of a run, or of `ale train rows`, to a folder that transformers loads."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs

from ale.errors import InputError, StoreError
from ale.files import replacing, store_errors
from ale.plugin import BuildContext
from ale.protocols import PolicyModel
from ale.runs import Checkpoints, Registry, RunReader, apply_overrides, build_choice
from ale.strict import Node, from_plain, structure
from ale.text import counted
from ale_trainer_policy import adapters
from ale_trainer_policy.checkpoint import State
from ale_trainer_policy.models import fingerprint_of
from ale_trainer_policy.options import TRAINERS, LearnOptions
from ale_trainer_policy.stored import check_shards, read_weights
from ale_training.checkpoint import check_digest, read_state
from ale_training.lora import LoraOptions
from ale_training.policy import trainable

_OWN = "ale-trainer-policy"
_IN_THE_FOLDER = ("type", "model", "tiny", "chat_template")
"""Options of the run's model that the exported folder replaces."""


@runtime_checkable
class SavablePolicy(PolicyModel, Protocol):
    """A policy that can be saved; ale-llm-policy's `TorchPolicy` is one."""

    def load_weights(self, source: Any) -> None:
        """Load all weights by name."""

    def save(self, directory: Path) -> None:
        """Write model, tokenizer and template in the format of transformers."""


@attrs.frozen(kw_only=True)
class ExportedModel:
    """The result of an export."""

    out: Path
    checkpoint: Path
    steps: int
    """Number of steps done: ``checkpoints/00059`` is after 60."""
    version: int
    form: str
    """``model``, ``merged model`` or ``adapter``."""
    llm: Mapping[str, Any]
    """A section ``llm`` that samples from the folder as the run did."""

    def lines(self) -> list[str]:
        """Text for the terminal."""
        section = ", ".join(f"{key}: {json.dumps(value)}" for key, value in self.llm.items())
        return [
            f"{self.out}: the {self.form} after {counted(self.steps, 'step')}, "
            f"policy version {self.version}, of {self.checkpoint}",
            f"llm: {{{section}}}",
        ]


def write_model(
    run: Path,
    out: Path,
    registry: Registry,
    *,
    after: int | None = None,
    merge: bool = False,
    overrides: Sequence[str] = (),
) -> ExportedModel:
    """Write the policy of a run, or of a training on a data set, after some number of steps.

    The run's own section ``llm`` creates or loads the model, into which the checkpoint's weights
    are loaded. The folder is written atomically.

    Args:
        out: a folder that does not exist.
        after: number of steps; None takes the newest checkpoint.
        merge: write the whole model of a run that trained LoRA adapters.
        overrides: ``llm.key=value`` settings that replace those of the run's own section.

    Raises:
        InputError: `run` has no trainer of this package or no such checkpoint, `out` exists or
            can't be created, or the initial model of the run is not found.
        StoreError: the checkpoint can't be read or is damaged, or the folder can't be written.
    """
    manifest, seed = _manifest(run)
    trainer, options = _trainer(manifest)
    steps, checkpoint = _checkpoint(run, after)
    if merge and options.lora is None:
        message = "this run trained all weights, so there is nothing to merge"
        raise InputError.of(message, path="--merge", hint="leave --merge out")
    if out.exists() or out.is_symlink():
        raise InputError.of(f"{out} exists", path="--out", expected="a folder that does not exist")
    section = _overridden(_part(manifest, "llm"), overrides)
    state = read_state(checkpoint, State, trainer=trainer)
    check_digest(checkpoint, state)
    check_shards(checkpoint, state.shards)
    weights = read_weights(checkpoint)
    with _policy(section, seed, registry) as policy:
        if fingerprint_of(policy, options) != state.fingerprint:
            raise InputError.of(
                f"{checkpoint} is a checkpoint of another model than the config's",
                path="llm",
                hint="has the corpus of llm.tiny, or the folder llm.model, changed since? "
                "--set llm.KEY=VALUE names another one",
            )
        form = _write(policy, options.lora, weights, out, merge=merge)
    return ExportedModel(
        out=out,
        checkpoint=checkpoint,
        steps=steps,
        version=state.version,
        form=form,
        llm=_sampling_section(section, registry, out, merged=merge),
    )


def _manifest(run: Path) -> tuple[Node, int]:
    """The sections that a model was trained with, below ``config``, and its seed."""
    file = run / "training.json"
    if not (run / "manifest.json").exists() and file.exists():  # of `ale train rows`
        try:
            stored = json.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise StoreError(f"{file} can't be read: {error}") from error
        options, llm = stored.get("options"), stored.get("llm")
        if options and llm:
            config = {"llm": llm, "trainer": options["trainer"]}
            return from_plain({"config": config}, file=str(file)), int(options["run"]["seed"])
    reader = RunReader(run)
    manifest = from_plain(reader.manifest, file=str(run / "manifest.json"))
    return manifest, int(reader.manifest["seed"])


def _part(manifest: Node, name: str) -> Node:
    config = manifest.get("config")
    part = None if config is None else config.get(name)
    if part is None or part.mapping is None:
        raise manifest.error(f"this run has no {name}", path=f"config.{name}")
    return part


def _trainer(manifest: Node) -> tuple[str, LearnOptions]:
    """The name and the options of the run's trainer.

    Raises:
        InputError: the run has no trainer, or its trainer belongs to another package.
    """
    part = _part(manifest, "trainer")
    entries = dict(part.mapping or {})
    trainer = entries.pop("type", Node("", part.file)).value
    owner, _, name = str(trainer).rpartition("/")
    if owner != _OWN or name not in TRAINERS:
        expected = "one of " + ", ".join(f"{_OWN}/{each}" for each in TRAINERS)
        message = f"this run was trained by {trainer}, whose checkpoints can't be exported"
        raise manifest.error(message, path="config.trainer.type", expected=expected)
    return name, structure(Node(entries, part.file, part.line), TRAINERS[name], path="trainer")


def _checkpoint(run: Path, after: int | None) -> tuple[int, Path]:
    """The checkpoint after some number of steps: that number, and its folder.

    Raises:
        InputError: there is no such checkpoint, or none at all.
    """
    checkpoints = Checkpoints(run / "checkpoints")
    found = [step + 1 for step in checkpoints.steps()]
    if not found:
        hint = "a run writes one after each finished step"
        raise InputError.of("no checkpoint", file=str(run), hint=hint)
    chosen = found[-1] if after is None else after
    if chosen not in found:
        message = f"{run} has no checkpoint after {counted(chosen, 'step')}"
        raise InputError.of(message, path="--after", expected=_ranges(found))
    return chosen, checkpoints.folder(chosen - 1)


def _ranges(steps: Sequence[int]) -> str:
    """Consecutive steps as text, such as ``0 to 3, 7``."""
    parts: list[list[int]] = []
    for step in steps:
        if parts and parts[-1][1] == step - 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    return ", ".join(f"{a} to {b}" if a < b else str(a) for a, b in parts)


def _overridden(section: Node, overrides: Sequence[str]) -> Node:
    for text in overrides:
        if not re.match(r"llm\.[^=]", text):
            message = f"expected llm.key=value, found '{text}'"
            raise InputError.of(message, path="--set", hint="for example --set llm.model=FOLDER")
    merged = apply_overrides(Node({"llm": section}, section.file), overrides).get("llm")
    assert merged is not None
    return merged


@contextmanager
def _policy(section: Node, seed: int, registry: Registry) -> Iterator[SavablePolicy]:
    """The policy as at the start of the run.

    Raises:
        InputError: it can't be built, or can't be saved.
    """
    context = BuildContext(seed=seed, environ=dict(os.environ))
    _, llm = build_choice(section, "llm", registry, context)
    try:
        policy = trainable(llm).policy
        if not isinstance(policy, SavablePolicy):
            message = f"the model {type(llm).__name__} has a policy that can't be saved"
            raise section.error(message, path="llm.type")
        if hasattr(policy.model, "peft_config"):
            message = "the run's initial model has a PEFT adapter; export is not supported"
            raise section.error(message, path="llm.model")
        yield policy
    finally:
        asyncio.run(llm.aclose())


def _write(
    policy: SavablePolicy,
    lora: LoraOptions | None,
    weights: Mapping[str, Any],
    out: Path,
    *,
    merge: bool,
) -> str:
    """Write the policy with the checkpoint's weights; returns the form written."""
    base = policy.model.name_or_path
    if lora is None:
        policy.load_weights(weights)
    elif merge:
        adapters.merge(policy.model, lora, weights)
    elif base:
        tuner = adapters.add(policy.model, lora, weights)
        with _new_folder(out) as partial:
            adapters.write(tuner, base, partial)
            policy.tokenizer.save_pretrained(partial)
        return "adapter"
    else:
        message = "the adapters' base model was created from the run's seed and is in no folder"
        raise InputError.of(message, path="--out", hint="--merge writes a whole model")
    with _new_folder(out) as partial:
        policy.save(partial)
    return "model" if lora is None else "merged model"


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder to write into, renamed to `out` at the end, and removed on an error."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.of(f"{out} can't be created: {error.strerror}", path="--out") from error
    with store_errors(out), replacing(out) as partial:
        partial.mkdir()
        yield partial


def _sampling_section(
    section: Node, registry: Registry, out: Path, *, merged: bool
) -> Mapping[str, Any]:
    """A section ``llm`` that samples from `out` as the run did; defaults are left out."""
    given = section.plain()
    component = registry.find("llm", given["type"]).component
    fields = {} if component.options is None else attrs.fields_dict(component.options)
    changed = {
        key: value
        for key, value in given.items()
        if key not in (*_IN_THE_FOLDER, *(["quantise"] * merged))
        and (key not in fields or not _same(value, fields[key]))
    }
    return {"type": component.name, "model": str(out), **changed}


def _same(value: Any, field: attrs.Attribute[Any]) -> bool:
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    return bool(value == default)
