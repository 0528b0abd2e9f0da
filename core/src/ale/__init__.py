"""ale: a plugin-based framework for agentic training.

`ale.run`, `ale.resume` and their asynchronous forms run a config, `ale.steer` asks something of a
run that is running; `ale.criterion`, `ale.credit`,
`ale.agent`, `ale.tasks`, `ale.chunker` and `ale.objective` make a plugin of a function.

The public modules are `ale.hookspecs` (the extension points), `ale.plugin` (how a package
registers components), `ale.functions` (how a function is one), `ale.protocols` (what they
implement), `ale.types` (the records that pass between stages), `ale.runs` (stored runs),
`ale.strict`, `ale.text`, `ale.errors` and `ale.testing`. Modules whose name starts with an
underscore are private.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

# Imported at their first use: `ale --help` needs none of them. Their types stand in __init__.pyi.
_HOMES = {
    "ale._front": ("aresume", "arun", "resume", "run"),
    "ale._run.control": ("steer",),
    "ale.functions": ("Answer", "agent", "chunker", "credit", "criterion", "objective", "tasks"),
    "ale.protocols": ("AgentContext", "Terms", "Tokens"),
    "ale.types": ("CriterionSpec", "Group", "Stop", "Task", "Trajectory"),
}
_FROM = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_FROM]


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module 'ale' has no attribute '{name}'")
    value = getattr(_import_module(_FROM[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_FROM]
