"""From YAML files and ``--set`` to a typed `RunConfig`."""

from ale._config.load import (
    load_config,
    load_tree,
    part_values,
    reload_environ,
    structure_config,
)
from ale._config.model import RunConfig, RunOptions, Selected

__all__ = [
    "RunConfig",
    "RunOptions",
    "Selected",
    "load_config",
    "load_tree",
    "part_values",
    "reload_environ",
    "structure_config",
]
