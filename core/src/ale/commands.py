"""The command line, for packages with console scripts of their own.

Such a script parses its own flags and hands the work to `ale`: what is said, where it is stored
and how it ends are then the same, whatever name it was called by.
"""

from ale._cli.main import Telling as Group
from ale._cli.main import main as ale

__all__ = ["Group", "ale"]
