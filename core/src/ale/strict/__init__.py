"""Strict reading of YAML files into attrs classes, with line numbers in error messages.

All problems are reported at once. Plugins use it for tasks and scripts, with the same messages
as for the config.
"""

from ale.errors import nearest
from ale.strict.node import Node, describe, from_plain
from ale.strict.reading import nearest_file, parse_yaml, read_texts, read_yaml
from ale.strict.structuring import Former, NameOrPath, former_options, structure
from ale.strict.texts import decoded, read_text

__all__ = [
    "Former",
    "NameOrPath",
    "Node",
    "decoded",
    "describe",
    "former_options",
    "from_plain",
    "nearest",
    "nearest_file",
    "parse_yaml",
    "read_text",
    "read_texts",
    "read_yaml",
    "structure",
]
