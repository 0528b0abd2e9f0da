"""The command line, for packages with their own console scripts.

Such a script parses its own flags and then calls `ale`, so that output, run directories and exit
codes are the same. `Starting` is the class of a command that starts work, such as `ale run`.
"""

from ale._cli.main import ReportingGroup as Group
from ale._cli.main import Starting
from ale._cli.main import main as ale

__all__ = ["Group", "Starting", "ale"]
