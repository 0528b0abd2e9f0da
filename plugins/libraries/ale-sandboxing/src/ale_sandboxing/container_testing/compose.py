"""The versions of docker compose on this machine, which tests of several containers run with."""

import functools
import os
import subprocess
from collections.abc import Mapping

CLIENTS = (("docker", "compose"), ("docker-compose",))
COMPOSE = {"1": {"DOCKER_CONFIG": "/nonexistent"}, "2": {"DOCKER_CONFIG": "/opt/ale-compose-2"}}
"""Variables by major version: with them that version is the one that is used."""


@functools.cache
def why_no_compose(version: str) -> str | None:
    """Why there can be no tests with this major version of docker compose; None where there can."""
    found = _version({**os.environ, **COMPOSE[version]})
    if found.startswith(f"{version}."):
        return None
    return f"no docker compose {version} on this machine (found: {found or 'none'})"


def _version(environ: Mapping[str, str]) -> str:
    for client in CLIENTS:
        try:
            done = subprocess.run(
                [*client, "version", "--short"],
                capture_output=True,
                env=environ,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return done.stdout.strip().removeprefix("v")
    return ""
