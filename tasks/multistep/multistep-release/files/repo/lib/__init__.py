"""A library."""

__version__ = "1.3.2"
