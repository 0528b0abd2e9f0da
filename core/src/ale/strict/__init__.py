"""Read what people write, strictly: YAML with line numbers, into attrs classes.

All problems are reported at once. For plugins too: a task reader or a script reader gets the same
messages as the config.
"""

from ale.errors import nearest
from ale.strict.node import Node, describe, from_plain
from ale.strict.reading import nearest_file, parse_yaml, read_yaml
from ale.strict.structuring import structure

__all__ = [
    "Node",
    "describe",
    "from_plain",
    "nearest",
    "nearest_file",
    "parse_yaml",
    "read_yaml",
    "structure",
]
