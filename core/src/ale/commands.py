"""The command line, for packages with commands or console scripts of their own.

A command takes its parameters of common kinds from here: `run_argument`, `overrides_option` (the
repeatable ``--set``), `allow_host_option` and `port_option` of what listens, the types `PATH` and
`RUN` (a run directory, or ``latest``), and the metavar `COMPONENT` of options for
`ale.runs.parse_choice`; `Starting` is the class of a command that starts work, such as `ale run`,
and `started` is what it calls as soon as it has. A console script parses its own flags and then
calls `ale`, so that output, run directories and exit codes are the same.
"""

from ale._cli.common import (
    COMPONENT,
    PATH,
    RUN,
    allow_host_option,
    overrides_option,
    port_option,
    run_argument,
)
from ale._cli.main import ReportingGroup as Group
from ale._cli.main import Starting, started
from ale._cli.main import main as ale

__all__ = [
    "COMPONENT",
    "PATH",
    "RUN",
    "Group",
    "Starting",
    "ale",
    "allow_host_option",
    "overrides_option",
    "port_option",
    "run_argument",
    "started",
]
