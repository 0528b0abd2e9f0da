"""Converts a config file of ALE-lite to the config of `ale`."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ale.errors import InputError, PluginError
from ale.plugin import Converted, Probe, Secret
from ale.strict import Node, from_plain, structure
from ale_lite.schema import NO_KEY, LiteConfig, LlmSection, SandboxSection

KEY_VARIABLE = "ALE_LITE_API_KEY"
"""Variable that holds a key written in the file, for this run only."""

Ask = Callable[[str, str], Probe | None]


def convert(root: Node, probe: Ask) -> Converted:
    """The same config as `ale run` takes it, without ``tasks``.

    Raises:
        InputError: with every unknown key, wrong type and value out of range, by line and path;
            or paths are listed for a sandbox that sees all.
    """
    sections = {key: node for key, node in (root.mapping or {}).items() if node.value is not None}
    written = structure(Node({**sections}, root.file, root.line), LiteConfig)
    llm, environ = _llm(written.llm)
    parts = {
        "llm": llm,
        "agent": {"type": "iflow", **attrs.asdict(written.agent)},
        "sandbox": _sandbox(written.sandbox, probe, sections.get("sandbox", root)),
    }
    tree = {name: _at(values, sections.get(name, root)) for name, values in parts.items()}
    tree["chunker"] = from_plain({"type": "ale-lite"}, file=root.file)
    tree["credit"] = from_plain({"type": "ipa-lite"}, file=root.file)
    # One after the other: a model at home answers one at a time, and the order of what is stored
    # is then that of the tasks.
    tree["run"] = from_plain({"concurrency": 1}, file=root.file)
    return Converted(root=Node(tree, root.file, root.line), environ=environ, hint=_hint(root))


def _hint(root: Node) -> str:
    name = shlex.quote(root.file or "FILE")
    return (
        "a config of ALE-lite has no tasks; give them on the command line: "
        f"iflow run --task FILE --config {name}, or tbp run --tasks FOLDER --config {name}"
    )


def _llm(section: LlmSection) -> tuple[dict[str, Any], Mapping[str, Secret]]:
    values = {"type": "openai", **attrs.asdict(section)}
    values["deadline_s"] = max(600.0, section.timeout_s)
    key = values.pop("api_key")
    if key == NO_KEY:
        return {**values, "placeholder_key": key}, {}
    return {**values, "api_key_env": KEY_VARIABLE}, {KEY_VARIABLE: Secret(key)}


def _sandbox(section: SandboxSection, probe: Ask, at: Node) -> dict[str, Any]:
    values = attrs.asdict(section)
    if chosen_backend(values.pop("backend"), probe) == "local":
        if section.allowlist_paths:
            raise InputError.of(
                "the backend local sees the whole host, so a list of paths allows nothing less",
                file=at.file,
                line=(at.get("allowlist_paths") or at).line,
                path="sandbox.allowlist_paths",
                hint="leave it out, or use backend: docker",
            )
        # It has no image and no network of its own.
        return {"type": "local"}
    return {"type": "docker", **values}


def chosen_backend(backend: str, probe: Ask) -> str:
    """``docker`` or ``local``; ``auto`` is docker where its engine answers."""
    if backend != "auto":
        return backend
    try:
        found = probe("sandbox", "docker")
    except PluginError:  # it is not installed, or registered twice
        return "local"
    return "docker" if found is not None and found.usable else "local"


def _at(values: Mapping[str, Any], written: Node) -> Node:
    """A section; what was written in the file keeps its line, for problems that come up later."""
    nodes = {}
    for key, value in values.items():
        at = written.get(key) or written
        plain = [str(path) for path in value] if isinstance(value, tuple) else value
        nodes[key] = from_plain(plain, file=at.file, line=at.line)
    return Node({**nodes}, written.file, written.line)


def is_lite(root: Node) -> bool:
    """Does the file have a key that only ALE-lite has, and none that only `ale` has?"""
    mapping = root.mapping or {}
    if not set(mapping) <= {"llm", "agent", "sandbox"}:
        return False
    if any(section.get("type") is not None for section in mapping.values()):
        return False
    own = (("llm", "api_key"), ("sandbox", "backend"))
    return any(name in mapping and mapping[name].get(key) is not None for name, key in own)
