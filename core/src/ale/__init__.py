"""ale: a plugin-based framework for agentic training.

The public modules are `ale.hookspecs` (the extension points), `ale.plugin` (how a package
registers components), `ale.protocols` (what they implement), `ale.types` (the records that pass
between stages), `ale.runs` (stored runs), `ale.strict`, `ale.text`, `ale.errors` and `ale.testing`.
Modules whose name starts with an underscore are private.
"""

__version__ = "0.1.0"
