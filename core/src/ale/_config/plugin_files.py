"""The top-level key ``plugins``: Python files with hook implementations, for one config alone."""

import hashlib
import tokenize
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path

from attrs import frozen

from ale._registry import KINDS, Registry, functions_in
from ale.errors import InputError
from ale.strict import Node, decoded, nearest_file, structure
from ale.strict.structuring import Problems

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
    problems = Problems()
    for number, path in enumerate(named):
        broken = partial((node.items or [node])[number].error, path=f"{KEY}[{number}]")
        loaded[str(path)] = problems.collect(partial(_load, path, registry, broken))
    problems.raise_all()
    return loaded


def _load(path: Path, registry: Registry, broken: Callable[..., InputError]) -> str:
    known = registry.files.get(path)
    if known is not None:
        return known
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise broken(f"no such file: {path}", hint=nearest_file(path)) from None
    except OSError as error:
        raise broken(f"{path} can't be read: {error.strerror}") from None
    if _encoding(source).startswith("utf-8"):
        decoded(source, path)
    digest = hashlib.sha256(source).hexdigest()
    name = f"ale_plugin_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    from ale.functions import module_of_source  # late: most configs name no file

    try:
        module = module_of_source(name, str(path), source)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too
        raise broken(_failure(path, error)) from None
    _register(module, path, digest, registry, broken)
    registry.files[path] = digest
    return digest


def _encoding(source: bytes) -> str:
    """The encoding that the file's first lines declare, as Python reads it."""
    try:
        return tokenize.detect_encoding(BytesIO(source).readline)[0]
    except SyntaxError:  # an unknown one; or a first line that is not UTF-8
        return "utf-8"


def _register(
    module: object,
    path: Path,
    digest: str,
    registry: Registry,
    broken: Callable[..., InputError],
) -> None:
    known = len(registry.failed)
    registry.add(module, path.name, digest[:12], str(path))
    hooks = registry.manager.get_hookcallers(module) or functions_in(module)
    if len(registry.failed) == known and not hooks:
        hint = "decorate a function, as with @ale.criterion; or write a hook, with @hookimpl"
        raise broken(f"{path}: registers nothing: it has no hook", hint=hint)
    for kind in KINDS:  # asks its hooks, so that a broken one is a problem of the config
        registry.registrations(kind)
    for failure in registry.failed[known:]:
        if failure.entry_point == str(path):
            raise broken(_failure(path, failure.error, failure.message))


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
