"""Run the config of a benchmark with ``ale run``, or continue its run."""

import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from ale.commands import ale
from ale.errors import AleError, InputError
from ale.runs import (
    Registry,
    RunReader,
    build_choice,
    changed_tasks,
    changes_for_resume,
    fingerprint,
    lock,
    without_overrides,
)
from ale.strict import Node, from_plain

CONFIG = "config.yaml"
_DIGESTS = "tasks.json"
NOT_STARTED = (1, 2)
"""Exit codes of ``ale run`` for an error, and for invalid input."""
_SHOWN = 5


def default_folder(config: Mapping[str, Any], parent: Path) -> Path:
    """A folder for this config and no other: the same command finds its run again."""
    llm = config.get("llm") or config["agent"]
    model = str(llm.get("model") or llm["type"]).rstrip("/").rpartition("/")[2]
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in model)
    digest = hashlib.blake2b(_text(config).encode(), digest_size=4).hexdigest()
    return parent / f"{config['run']['name']}-{safe[:60]}-{digest}"


def as_yaml(config: Mapping[str, Any], folder: Path) -> str:
    """The config as the file that is run, with the folder of its run."""
    run = {**config["run"], "directory": str(folder.absolute())}
    return _text({**config, "run": run})


def _text(config: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump({**config}, sort_keys=False, allow_unicode=True)
    return text


def stored_run(folder: Path) -> Path | None:
    """The run in a folder of ``ale eval``, or the folder if it is itself a run.

    Raises:
        InputError: there are several.
    """
    if (folder / "manifest.json").exists():
        return folder
    found = sorted(path.parent for path in folder.glob("*/manifest.json"))
    if len(found) > 1:
        message = f"has {len(found)} runs: name one of them"
        raise InputError.of(message, file=str(folder), expected=str(found[0]))
    return found[0] if found else None


def run_in(
    folder: Path, text: str, tree: Node, arguments: list[str], registry: Registry, *, quiet: bool
) -> int:
    """Run a config in a folder, or continue the run that is there; the exit code of ``ale run``.

    A run is continued with what is missing, and what broke; a new address, key, or number of
    retries is used from then on.

    Args:
        folder: of the run.
        registry: the installed components.
        text: the config, as `as_yaml` gives it.
        tree: the same with where each value is from, for messages.
        arguments: of ``ale run``, for a new run and for one that continues.
        quiet: print nothing on standard output.

    Raises:
        InputError: the folder has a run of another config.
        StoreError: another process is running it, or it can't be written.
    """
    with _claimed(folder):
        run = stored_run(folder)
        changed = [] if run is None else _changed(folder / CONFIG, text, run, registry)
        if run is None:
            config = folder / CONFIG
            config.write_text(text)
            _write_digests(folder, text, registry)
            # The file is removed again where nothing is started; --print-config has its lines.
            names = {**_places(config, text, tree), str(config): "--print-config"}
            return _ale_run([*arguments, str(config)], names, quiet=quiet)
        note = "another --out or --seed starts a new run"
        print(f"continuing {os.path.relpath(run)} ({note})", file=sys.stderr)
        new = [part for each in changed for part in ("--set", each)]
        resuming = ["--resume", str(run), "--retry-broken", *new]
        code = _ale_run([*arguments, *resuming], {}, quiet=quiet)
        if code not in NOT_STARTED:
            (folder / CONFIG).write_text(text)
        return code


def _places(file: Path, text: str, tree: Node) -> dict[str, str]:
    """By each line of a config as an error names it: the option or file that its value is from."""
    names = {}
    for line, path in _lines(yaml.compose(text)):
        given = tree.innermost(path)
        if given.file is not None:
            below = "" if given.line is None else f"{given.line}:"
            names[f"{file}:{line}:"] = f"{given.file}:{below}"
    return names


def _lines(node: yaml.Node | None, path: str = "") -> Iterator[tuple[int, str]]:
    """Lines of a YAML document with the path of the value that stands there."""
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            below = f"{path}.{key.value}" if path else key.value
            yield key.start_mark.line + 1, below
            yield from _lines(child, below)
    elif isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield child.start_mark.line + 1, f"{path}[{number}]"
            yield from _lines(child, f"{path}[{number}]")


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """The folder, locked; removed again where it is new and no run was started."""
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = lock(folder)
    try:
        yield
    finally:
        if new and stored_run(folder) is None:
            shutil.rmtree(folder)
        os.close(descriptor)


def _changed(path: Path, text: str, run: Path, registry: Registry) -> list[str]:
    """Differences from the config of the run, as ``key=value``, where results don't depend on it.

    Raises:
        InputError: something else differs.
    """
    if not path.exists():
        return []
    before, now = dict(_flat(yaml.safe_load(path.read_text()))), dict(_flat(yaml.safe_load(text)))
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    fixed: list[str] = []
    free: list[str] = []
    with _file(text) as file:
        if changed:
            fixed, free = changes_for_resume(RunReader(run), file, registry)
        if not fixed:
            _check_tasks(path.parent, run, file, registry)
    if fixed:
        shown = (f"{key} {before.get(key)} -> {now.get(key)}" for key in changed[:_SHOWN])
        message = f"this folder has a run of another config: {', '.join(shown)}"
        hint = "choose another --out, or give the same options to continue it"
        raise InputError.of(message, file=str(path), hint=hint)
    return free


@contextmanager
def _file(text: str) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        yield Path(file.name)


def _write_digests(folder: Path, text: str, registry: Registry) -> None:
    """Note the files that local tasks name, such as tests, so that a change of one is noticed."""
    tasks = yaml.safe_load(text)["tasks"]
    if "path" not in tasks:
        return
    logging.disable(logging.WARNING)  # `ale run` reads the tasks too, and says what there is to say
    try:
        _, source = build_choice(from_plain(tasks), "tasks", registry)
        digests = {task.id: fingerprint(task) for task in source.load()}
    except (AleError, OSError):
        return  # `ale run` says why
    finally:
        logging.disable(logging.NOTSET)
    (folder / _DIGESTS).write_text(json.dumps(digests, indent=2))


def _check_tasks(folder: Path, run: Path, config: Path, registry: Registry) -> None:
    file = folder / _DIGESTS
    digests = json.loads(file.read_text()) if file.exists() else {}
    if differing := changed_tasks(RunReader(run), config, registry, digests):
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        message = f"this folder has a run of other tasks: {', '.join(differing[:_SHOWN])}{more}"
        hint = "choose another --out, which runs the tasks as they are now"
        raise InputError.of(message, file=os.path.relpath(run), hint=hint)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _flat(child, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _ale_run(arguments: list[str], names: Mapping[str, str], *, quiet: bool) -> int:
    for name in {*os.environ} - {*without_overrides(os.environ)}:
        del os.environ[name]  # what it overrides is in the config, except what an option gives
    try:
        with redirect_stdout(sys.stderr if quiet else sys.stdout):
            ale(["run", *arguments], names)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0
