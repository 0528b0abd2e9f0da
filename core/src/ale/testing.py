"""Says what is missing where ale-testing is not installed: it brings a package of this name."""

raise ModuleNotFoundError(
    "ale.testing is a package of its own: pip install ale-testing; in a clone: pip install -e .",
    name="ale.testing",
)
