"""The top-level key ``plugins``: Python files with hook implementations, for one config alone."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from ale._registry import KINDS, Registry
from ale.errors import InputError, Problem
from ale.strict import Node, nearest_file, structure

KEY = "plugins"


@frozen(kw_only=True)
class PluginFiles:
    """The files that a config names."""

    plugins: tuple[Path, ...] = ()


def load_plugin_files(root: Node, registry: Registry) -> dict[str, str]:
    """Import the files that the key ``plugins`` names and register their hooks.

    A file that the registry has loaded already is not imported again.

    Returns:
        The SHA-256 of each file by its absolute path.

    Raises:
        InputError: the key is not a list of paths, or a file is missing or broken.
    """
    node = root.get(KEY)
    if node is None or node.value is None:
        return {}
    named = structure(Node({KEY: node}, root.file, root.line), PluginFiles).plugins
    loaded: dict[str, str] = {}
    problems: list[Problem] = []
    for number, path in enumerate(named):
        item = (node.items or [node])[number]
        try:
            loaded[str(path)] = _load(path, registry)
        except _Broken as broken:
            where = f"{KEY}[{number}]"
            problems.append(item.problem(str(broken), path=where, hint=broken.hint))
    if problems:
        raise InputError(problems)
    return loaded


class _Broken(Exception):
    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _load(path: Path, registry: Registry) -> str:
    known = registry.files.get(path)
    if known is not None:
        return known
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise _Broken(f"no such file: {path}", nearest_file(path)) from None
    except OSError as error:
        raise _Broken(f"{path} can't be read: {error.strerror}") from None
    digest = hashlib.sha256(source).hexdigest()
    # Attrs and dataclasses look a class's module up in sys.modules.
    name = f"ale_plugin_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_loader(name, None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 - the user's own file
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        del sys.modules[name]
        raise _Broken(_failure(path, error)) from None
    _register(module, path, digest, registry)
    registry.files[path] = digest
    return digest


def _register(module: object, path: Path, digest: str, registry: Registry) -> None:
    known = len(registry.failed)
    registry.add(module, path.name, digest[:12], str(path))
    if len(registry.failed) == known and not registry.manager.get_hookcallers(module):
        hint = "a hook is a function such as ale_criteria with @hookimpl of ale.plugin"
        raise _Broken(f"{path}: registers nothing: it has no hook", hint)
    for kind in KINDS:  # asks its hooks, so that a broken one is a problem of the config
        registry.registrations(kind)
    for failure in registry.failed[known:]:
        if failure.entry_point == str(path):
            raise _Broken(_failure(path, failure.error, failure.message))


def _failure(path: Path, error: BaseException, message: str | None = None) -> str:
    line = _line(path, error)
    text = message or f"failed to load: {type(error).__name__}: {error}"
    return f"{path}:{line}: {text}" if line is not None else f"{path}: {text}"


def _line(path: Path, error: BaseException) -> int | None:
    """The line of the file at which the error was raised, or None if elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None


def changed_files(stored: object, current: Mapping[str, str]) -> list[str]:
    """The paths whose SHA-256 is not the stored one.

    Args:
        stored: ``plugins`` of a run's manifest.
        current: as `load_plugin_files` returns it.
    """
    before = stored if isinstance(stored, dict) else {}
    return [path for path, digest in current.items() if before.get(path) != digest]
