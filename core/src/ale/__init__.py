"""ale: a plugin-based framework for agentic training.

The public rooms are `ale.plugin` (how a package offers something), `ale.hookspecs` (the doors),
`ale.protocols` (what comes through a door), `ale.types` (the records that pass between stages),
`ale.errors` and `ale.testing`. Modules whose name starts with an underscore are private.
"""

__version__ = "0.1.0"
