"""Config files of other formats: convert them to the project's own, overrides included."""

from collections.abc import Iterator, Sequence

from attrs import evolve

from ale._config.plugin_files import KEY as PLUGINS
from ale._config.plugin_files import load_plugin_files
from ale._config.source import merge
from ale._registry import Registry
from ale.errors import PluginError
from ale.plugin import ConfigFormat, Converted
from ale.strict import Node


def convert(root: Node, overrides: Node, registry: Registry, format: str | None) -> Converted:
    """A config in the project's own format, with the overrides merged into it.

    An override of a key that the file's format has is applied before the conversion, any other
    after it. A section whose ``type`` is overridden is in the project's own words.

    Args:
        root: the file, with what it extends.
        overrides: as `parse_overrides` returns them.
        registry: gets the plugin files that the config names.
        format: the name of the file's format; default: detected from its keys.
    """
    plugins = overrides.get(PLUGINS) or root.get(PLUGINS)
    entries = {key: child for key, child in (root.mapping or {}).items() if key != PLUGINS}
    own = {} if plugins is None else {PLUGINS: plugins}
    load_plugin_files(Node({**own}, root.file, root.line), registry)
    source = Node({**entries}, root.file, root.line)
    found = _format_of(source, registry, format)
    if found is None:
        return Converted(root=_override(root, overrides))
    before, after = _split(overrides, found)
    made = found.convert(
        _override(source, before), lambda kind, name: registry.find(kind, name).probe()
    )
    tree = merge(Node({**own}), _override(made.root, after))
    return evolve(made, root=Node(tree.value, root.file, root.line))


def _override(node: Node, overrides: Node) -> Node:
    return Node(merge(node, overrides).value, node.file, node.line)


def _format_of(root: Node, registry: Registry, name: str | None) -> ConfigFormat | None:
    known = list(_formats(registry))
    found = [one for one in known if (one.name == name if name else one.reads(root))]
    if not found and name is None:
        return None
    if len(found) != 1:
        names = " and as ".join(one.name for one in found)
        message = f"can be read as {names}" if found else f"no package reads the format '{name}'"
        raise root.error(message + registry.suspects(), path="--format")
    return found[0]


def _formats(registry: Registry) -> Iterator[ConfigFormat]:
    for package, answer in registry.answers("ale_config_formats"):
        if isinstance(answer, Sequence) and all(isinstance(one, ConfigFormat) for one in answer):
            yield from answer
        else:
            error = PluginError(f"expected a list of ConfigFormat, got {answer!r}")
            registry.record_broken_hook(package, "ale_config_formats", error)


def _split(overrides: Node, format: ConfigFormat) -> tuple[Node, Node]:
    """The overrides of keys that the format has, and the others."""
    keys = set(format.keys())
    before: dict[str, Node] = {}
    after: dict[str, Node] = {}
    for name, section in (overrides.mapping or {}).items():
        if section.mapping is None or section.get("type") is not None:
            (before if name in keys else after)[name] = section
            continue
        for tree, of_format in ((before, True), (after, False)):
            options = {
                key: child
                for key, child in section.mapping.items()
                if (f"{name}.{key}" in keys) is of_format
            }
            if options:
                tree[name] = Node({**options}, section.file, section.line)
    return Node({**before}, overrides.file), Node({**after}, overrides.file)
