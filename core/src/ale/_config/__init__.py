"""From YAML files and ``--set`` to a typed `RunConfig`."""

from ale._config.load import load_config, reload_environ, structure_config
from ale._config.model import Evaluation, EvaluationOptions, RunConfig, RunOptions, Selected
from ale._config.source import read_source

__all__ = [
    "Evaluation",
    "EvaluationOptions",
    "RunConfig",
    "RunOptions",
    "Selected",
    "load_config",
    "read_source",
    "reload_environ",
    "structure_config",
]
