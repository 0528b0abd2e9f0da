"""From a config to the processes that are started."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.protocols import Launch, Launcher, Process
from ale.runs import (
    Checked,
    LaunchOptions,
    Registry,
    build_choice,
    check_config,
    environment_overrides,
)
from ale.strict import from_plain

_READY = Path(__file__).with_name("ready.py")
_READY_S = 1800
"""A large model may take long to load, first of all from a network's file system."""


@frozen(kw_only=True)
class Asked:
    """What the command line says."""

    config: Path
    on: str | None
    nodes: int | None
    overrides: Sequence[str]
    format: str | None
    directory: Path | None

    @property
    def all_overrides(self) -> Sequence[str]:
        """Those of the section ``launch`` last."""
        on = [] if self.on is None else [f"launch.type={self.on}"]
        nodes = [] if self.nodes is None else [f"launch.nodes={self.nodes}"]
        return [*self.overrides, *on, *nodes]


def prepare(asked: Asked, registry: Registry) -> tuple[str, Launcher, Launch]:
    """Check the config as `ale check` does; the launcher's name, the launcher and its launch.

    Raises:
        InputError: with every problem.
    """
    checked = check_config(
        asked.config, registry, asked.all_overrides, asked.format, asked.directory
    )
    section: Mapping[str, Any] = checked.config.get("launch") or {"type": "local"}
    node = from_plain(dict(section), file=str(asked.config))
    name, launcher = build_choice(node, "launch", registry)
    return name, launcher, _launch(asked, checked)


def _launch(asked: Asked, checked: Checked) -> Launch:
    options = checked.launch
    arguments = ["run", str(asked.config.absolute()), "--directory", str(checked.path)]
    # The process may be on a machine that does not have this one's variables.
    for override in (*environment_overrides(os.environ), *asked.all_overrides):
        arguments += ["--set", override]
    if asked.format is not None:
        arguments += ["--format", asked.format]
    wait = _waiting(options)
    ranks = checked.ranks
    run = Process(
        name="run",
        role="run",
        command=(*wait, *_python("ale"), *arguments),
        cpus=options.cpus,
        gpus=options.gpus,
        ranks=1 if ranks is None else ranks.count,
        rank_command=None if ranks is None else (*wait, *_python(ranks.module), *arguments),
    )
    return Launch(
        name=checked.path.name,
        directory=checked.path,
        run=run,
        others=[
            Process(
                name=each.name,
                role=each.role,
                command=each.command,
                count=each.count,
                cpus=each.cpus,
                gpus=each.gpus,
            )
            for each in options.processes
        ],
        nodes=options.nodes,
        restarts=options.restarts,
    )


def _python(module: str) -> tuple[str, ...]:
    # -P: modules are not imported from the working directory.
    return (sys.executable, "-P", "-m", module)


def _waiting(options: LaunchOptions) -> tuple[str, ...]:
    """In front of the run's command: wait for the servers."""
    urls = [each.url for each in options.processes if each.url is not None]
    return (sys.executable, "-I", str(_READY), str(_READY_S), *urls, "--") if urls else ()
